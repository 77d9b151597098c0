"""`penstock repair`: restores the changes that ended loads and commands have left."""
