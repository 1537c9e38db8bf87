"""The IR: operator kinds with all that any room must know of them, their work, and the Program of one rank and step."""
