"""Values as text and as objects for --json. Pure."""
