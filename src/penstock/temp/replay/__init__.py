"""Runs the user's statements with temporary work in one place and in another, and compares the times."""
