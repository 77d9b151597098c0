"""Data sets of any size that are the same at every run: IMDb's files, and sysbench's tables."""
