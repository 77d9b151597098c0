"""The tables of benchmarks: create them, mark them as penstock's own, drop them."""
