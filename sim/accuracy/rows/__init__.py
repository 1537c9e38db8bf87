"""Measurements as the model reads them: CSV files, profiler op types and shapes -> Work."""
