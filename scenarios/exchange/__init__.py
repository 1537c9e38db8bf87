"""What sim and device hand each other: plain data that neither side owns."""
