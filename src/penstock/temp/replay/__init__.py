"""Runs a user's statements with their temporary work in two tablespaces, and compares the times."""
