"""`penstock doctor`: facts of a server, the role's rights, and what prevents a load."""
