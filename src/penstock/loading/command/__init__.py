"""The commands about loads, job files, and the progress that they show."""
