"""Predictions held against measurements: kernels, steps, ladders, and the plain roofline beside them."""
