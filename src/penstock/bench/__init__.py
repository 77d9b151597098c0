"""The published experiments as comparable runs: the only room that uses both the lab and loading.

The command line shows the results.
"""
