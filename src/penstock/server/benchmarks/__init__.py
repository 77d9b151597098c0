"""The tables of benchmarks: created, marked as penstock's own, dropped."""
