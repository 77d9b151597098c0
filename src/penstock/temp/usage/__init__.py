"""Reports which statements use temporary files, and where these files are."""
