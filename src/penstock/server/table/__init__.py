"""Tables: described, created, locked, truncated, vacuumed."""
