"""What a load does around its rows: one file a step, their order in order.py."""
