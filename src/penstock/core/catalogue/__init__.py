"""What several features read of a server: its facts and settings, tables, locks and definitions."""
