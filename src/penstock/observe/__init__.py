"""Samples a server at intervals, and writes and reads recordings of the samples. Package diagnose interprets them.

This package imports nothing. A load imports `beside` at its start, and the rest only if it takes longer than a moment.
"""
