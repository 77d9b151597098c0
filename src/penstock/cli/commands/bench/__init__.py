"""`penstock bench`, a file for each experiment."""
