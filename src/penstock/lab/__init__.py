"""Servers of one's own: the embedded one, topologies with standbys, throttled volumes, an S3, and data sets."""
