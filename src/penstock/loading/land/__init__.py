"""The ways in which records become rows: directly, by staging and merging, or by replacing the table."""
