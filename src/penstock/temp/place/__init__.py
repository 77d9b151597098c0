"""Creates, checks and removes a tablespace for temporary work on a local disk."""
