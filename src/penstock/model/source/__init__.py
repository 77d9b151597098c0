"""Values of sources: the objects to load, blocks of records, and dialects."""
