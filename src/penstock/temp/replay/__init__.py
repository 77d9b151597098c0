"""A user's statements run with their temporary work in two tablespaces, and compared."""
