"""Where bytes come from and how they spell records."""
