"""Plans, outcomes and loads as text and as objects for --json. Pure."""
