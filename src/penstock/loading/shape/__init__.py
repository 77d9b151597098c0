"""What of a table is dropped or switched off for a load, and restored after it."""
