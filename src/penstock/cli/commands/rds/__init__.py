"""The commands of `penstock rds`."""
