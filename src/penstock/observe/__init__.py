"""Watches a server at work: samples on a clock, and recordings of them. What they mean is diagnose's."""
