"""What spills to disk, by whom, and where it goes."""
