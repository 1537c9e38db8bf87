"""Requests in time: the scheduler of `scenarios.serving` on step times of `sim.predict` and an engine's host costs."""
