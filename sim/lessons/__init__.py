"""The experiments behind the lab's lessons: each answers one claim with numbers that are computed when it is asked.

Predictions come from the simulator as it is; numerics are real arithmetic (numpy), rounded where a device rounds.
"""
