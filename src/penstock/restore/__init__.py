"""`penstock repair`: restores what ended loads and commands have left changed."""
