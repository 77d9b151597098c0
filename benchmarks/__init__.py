"""Benchmarks: each records machine, versions, settings, every run, medians and spread (see README.md)."""
