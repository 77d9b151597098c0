"""The .sql files, one query each, and the functions that find and run them."""
