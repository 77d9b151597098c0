"""`penstock storage`: shows what a workload used of its volume, and which storage would carry it."""
