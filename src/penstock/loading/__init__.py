"""Loads: from the job to the outcome."""
