"""Weights for a Program: seeded random ones, safetensors (FP8 blocks too) and GGUF files."""
