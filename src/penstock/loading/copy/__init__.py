"""Blocks as payloads of COPY, and sessions that send them."""
