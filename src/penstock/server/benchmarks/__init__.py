"""The tables of benchmarks: creates them, marks them as penstock's own, and drops them."""
