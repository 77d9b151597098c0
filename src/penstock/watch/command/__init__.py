"""`penstock watch`, and its screen."""
