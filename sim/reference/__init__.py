"""Measurements with their public sources, shipped: what the model is fitted to and judged by."""
