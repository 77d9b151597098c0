"""What commands take: the options that are declared in penstock.model, and what several commands share beside them."""
