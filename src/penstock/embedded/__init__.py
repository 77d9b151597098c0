"""The PostgreSQL server that penstock has with it: created, started on demand, and left running."""
