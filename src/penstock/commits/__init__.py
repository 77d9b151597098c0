"""`penstock commits`: shows which applications wait for commits, and how much faster larger batches would be."""
