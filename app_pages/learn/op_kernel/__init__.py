"""Lesson: op_kernel. page.py draws it, experiment.py computes it, texts.py says it in both languages."""

#: Its place in the menu, and its icon there.
PLACE, ICON = 15, ":material/call_split:"
