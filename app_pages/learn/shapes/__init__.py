"""Lesson: shapes. page.py draws it, experiment.py computes it, texts.py says it in both languages."""

#: Its place in the menu, and its icon there.
PLACE, ICON = 45, ":material/aspect_ratio:"
