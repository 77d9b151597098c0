"""A full inspection of a server: its roles, standbys, activity, and the cost of a commit."""
