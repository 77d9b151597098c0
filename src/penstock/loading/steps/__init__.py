"""What a load does around its rows, a class each; order.py lists them."""
