"""Reports which statements and databases spill to disk, and to which tablespaces."""
