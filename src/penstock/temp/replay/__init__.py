"""Runs the user's own statements with temporary work in one place and in another, and compares the times."""
