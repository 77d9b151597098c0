"""`penstock temp`: shows what spills to disk, and puts temporary work on a local disk."""
