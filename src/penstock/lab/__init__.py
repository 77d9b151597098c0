"""Servers for tests: the embedded server, topologies with standbys, throttled volumes, an S3, and data sets."""
