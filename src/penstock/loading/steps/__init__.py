"""The steps of a load before and after its rows, one class for each. order.py lists them."""
