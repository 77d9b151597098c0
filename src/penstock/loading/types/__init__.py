"""Finds the types of columns in all values of the files, and plans the tables that have them."""
