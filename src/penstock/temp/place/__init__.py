"""A tablespace for temporary work on a local disk: made, checked and removed."""
