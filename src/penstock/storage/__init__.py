"""`penstock storage`: what a workload asked of its volume, and which storage would carry it."""
