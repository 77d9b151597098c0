"""Made-up data sets as files: the shapes of IMDb's tables and of sysbench's, from a seed."""
