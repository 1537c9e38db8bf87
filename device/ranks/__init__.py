"""Several processes: their groups, how they start, and pipeline stages."""
