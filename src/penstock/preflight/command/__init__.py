"""`penstock doctor`, and its screen."""
