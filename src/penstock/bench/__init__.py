"""The published experiments as comparable runs, which drive the lab and loads together."""
