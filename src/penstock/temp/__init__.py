"""Temporary work of a server: what spills to disk and where to, a place for it on local disk, and what that gains."""
