"""`penstock temp`: what spills to disk, and temporary work on a local disk."""
