"""A measured step: steady times, numerics against the reference, and the result laid next to a prediction."""
