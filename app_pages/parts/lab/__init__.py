"""The parts of the lab's page, from top to bottom."""
