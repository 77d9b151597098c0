"""Runs the sessions that send blocks, commit batches, and record what they have committed."""
