"""Reads objects: opens them, cuts them into blocks, and hands these to sessions."""
