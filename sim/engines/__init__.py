"""What a serving engine's host adds to a step: profiles as YAML, every number with its source."""
