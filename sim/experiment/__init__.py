"""The seed's seven steps as a protocol: one factor at a time, predicted next to measured, with a verdict for each.

Nothing here measures: a `scenarios.exchange.bench.Bench` does. The same measurements give the same report.
"""
