"""The request of the user: options and job files, as values."""
