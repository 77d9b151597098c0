"""Judges whether a load would work, from descriptions of a server and of AWS: values in, findings out."""
