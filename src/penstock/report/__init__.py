"""`penstock report`: recordings as one HTML page."""
