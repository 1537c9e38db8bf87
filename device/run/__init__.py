"""Walking a Program on a device: its session, host inputs, caches, streams and captured pieces."""
