"""Sources, their blocks of records, and their dialects."""
