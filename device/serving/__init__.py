"""Requests served for real: the scheduler and allocators of `scenarios.serving` drive a session's steps."""
