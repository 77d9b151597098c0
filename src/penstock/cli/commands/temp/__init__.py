"""`penstock temp`, a file for each command."""
