"""What a load does before and after its rows: one file for each step, and their order in order.py."""
