"""`penstock commits`: who waits for commits, and what larger batches would buy."""
