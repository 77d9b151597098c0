"""`penstock watch`: samples a server at intervals, and writes and reads recordings."""
