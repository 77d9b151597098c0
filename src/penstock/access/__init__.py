"""Judges whether a load would work, from descriptions of a server and of AWS. Takes values and returns findings."""
