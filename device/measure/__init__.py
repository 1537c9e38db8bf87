"""A measured step: steady times, numerics against the reference, and the result laid beside a prediction."""
