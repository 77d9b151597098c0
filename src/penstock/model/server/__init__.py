"""Values that describe a server and its tables, as read by SQL and from AWS."""
