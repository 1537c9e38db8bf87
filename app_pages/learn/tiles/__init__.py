"""Lesson: tiles. page.py draws it, experiment.py computes it, texts.py says it in both languages."""

#: Its place in the menu, and its icon there.
PLACE, ICON = 65, ":material/view_week:"
