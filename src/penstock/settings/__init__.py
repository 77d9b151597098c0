"""`penstock settings`: profiles of settings, and leases under which a server has them."""
