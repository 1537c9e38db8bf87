"""Scenario and batch to a Program of primitive operations; the passes fuse, pack and quantise from there."""
