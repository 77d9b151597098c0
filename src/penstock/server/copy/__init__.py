"""COPY sessions, and records that a table refuses, sorted out by the server."""
