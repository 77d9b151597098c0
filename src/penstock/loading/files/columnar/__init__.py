"""Opens Parquet and Arrow files, which the Rust core decodes, and copies tables in memory to such files."""
