"""Lesson: parallelism. page.py draws it, experiment.py computes it, texts.py says it in both languages."""
