"""Shipped Hugging Face `config.json` files, and the reader that turns one into a Model."""
