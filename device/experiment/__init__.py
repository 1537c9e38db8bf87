"""Two scenarios in turn on one device: times, memory and what they do to the numbers. torch only where one is chosen."""
