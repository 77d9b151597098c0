"""Writes data sets as files, from a seed: tables shaped like IMDb's and like sysbench's."""
