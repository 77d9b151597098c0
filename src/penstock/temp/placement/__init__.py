"""Creates a tablespace for temporary work on a directory, proves that it is used, checks it later, and removes it."""
