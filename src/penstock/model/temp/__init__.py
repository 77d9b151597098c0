"""Values about temporary work that rooms pass to each other."""
