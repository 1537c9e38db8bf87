"""What the pages share: answers (cached), charts (specifications made from plain rows), texts (English and Chinese),
state (the URL), palette, and the small pieces of a page."""
