"""`penstock doctor`: facts of a server, the role's rights, and what stands in a load's way."""
