"""The published experiments as comparable runs: the only room that drives the lab and loading together.

What the runs show is told by the command line.
"""
