"""What to run: scenario files, models, the Program, its lowering and its passes. No physics, no torch, no simpy."""
