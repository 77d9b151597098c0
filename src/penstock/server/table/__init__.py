"""Tables: look them up, create, lock, truncate and vacuum them."""
