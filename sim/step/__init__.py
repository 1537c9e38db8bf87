"""One step in time: its plan, host, streams, ranks and stages, played by SimPy or by its recurrence."""
