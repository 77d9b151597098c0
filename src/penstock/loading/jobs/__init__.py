"""Job files, and the requests that options make."""
