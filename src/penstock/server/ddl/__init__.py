"""A table's definition: it is captured, a replacement is created from it, and the two are swapped.

The order of calls is capture_table, find_obstacles, create_replacement, (enforce_early, if rows are to be refused one
by one), the load, finish_replacement, swap_replacement. Until swap_replacement commits, the old table is unchanged.
Other packages load the rows, record the replacement in the ledger, and drop a replacement that is given up.
"""
