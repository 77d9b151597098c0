"""Encodes blocks as payloads of COPY, and sends them in sessions."""
