"""`penstock bench`, and what its commands have in common."""
