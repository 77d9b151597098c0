"""Prints to the terminal: results, messages and progress bars. Escapes characters that are unsafe there."""
