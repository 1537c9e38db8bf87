"""What one step works on, at the foot of the package: its requests and groups, number formats, rotary angles."""
