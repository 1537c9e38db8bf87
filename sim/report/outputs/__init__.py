"""What the commands write: each file whole or not at all, never over an input."""
