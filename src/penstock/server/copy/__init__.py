"""COPY sessions, and the server-side sorting of records that a table refuses."""
