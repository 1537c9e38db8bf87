"""Measure: runs a Program on a device. torch is imported only when a backend is chosen."""
