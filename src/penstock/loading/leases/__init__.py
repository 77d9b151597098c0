"""The server's settings while a load runs, and leases that a killed load left."""
