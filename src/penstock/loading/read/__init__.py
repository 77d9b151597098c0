"""Reads objects as blocks of records, and queues the blocks for the sessions."""
