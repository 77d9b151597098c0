"""penstock rds."""
