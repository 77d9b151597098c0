"""Turns values into text, and into objects for --json. Pure."""
