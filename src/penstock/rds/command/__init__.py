"""`penstock rds`."""
