"""What an imported capture says: where a measured step's time goes, who waits for whom, and what to try."""
