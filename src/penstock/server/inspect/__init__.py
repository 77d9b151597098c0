"""A server looked at in full: its roles, standbys, activity, and what a commit costs."""
