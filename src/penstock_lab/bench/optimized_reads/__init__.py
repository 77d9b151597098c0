"""The experiment on Optimized Reads: queries that spill, to the data's volume and to a local disk."""
