"""Predictions held against measurements: kernels, steps, ablations, and the plain roofline next to them."""
