"""Turns results of commands into text, and into objects for --json. Pure."""
