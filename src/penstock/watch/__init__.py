"""`penstock watch`: a server sampled on a clock; recordings written and read."""
