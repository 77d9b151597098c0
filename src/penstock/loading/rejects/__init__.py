"""Records that the table refuses: found, explained, kept, written to files, and retried."""
