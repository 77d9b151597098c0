"""What spills, and where it goes."""
