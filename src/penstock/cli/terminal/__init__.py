"""Output on the terminal: results, messages, progress bars, and escapes for unsafe characters."""
