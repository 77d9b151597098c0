"""Makes servers, data and experiments: the lab, the benchmarks, the demo, the self-test. penstock never imports it."""
