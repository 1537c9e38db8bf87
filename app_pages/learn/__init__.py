"""The lessons: a folder each with its page, its experiment and its texts, and what all lessons share."""
