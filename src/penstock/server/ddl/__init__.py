"""A table's definition: captured, made again beside it, and swapped in.

The order is capture_table, find_obstacles, create_replacement (and enforce_early, where rows are to be refused one by
one), the load, finish_replacement, swap_replacement; until the last commits, the old table is untouched. Loading, the
record of it and dropping a new table that is given up belong to others.
"""
