"""What-if on a measured timeline: its dependencies rebuilt, replayed as they are, and replayed with a change.

The idea is Daydream's: a profile already holds the kernels' times; what an optimisation changes is which of them run,
how long, and what waits for what.
"""
