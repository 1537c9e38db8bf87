"""The what-ifs: each changes a graph as one optimisation would, and says what it assumes."""
