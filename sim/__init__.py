"""Predict: a discrete-event model of one scenario. Imports `scenarios` only."""

__version__ = "0.1.0"
