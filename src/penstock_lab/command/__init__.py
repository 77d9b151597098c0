"""`penstock lab`, `server` and `cat`."""
