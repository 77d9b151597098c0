"""Records that a table refuses: found, written down with the reason, loaded again; and --check, which only looks."""
