"""Judges whether a load would work, from descriptions of a server and of AWS. It takes values and returns findings."""
