"""What was asked for: options and job files, as values."""
