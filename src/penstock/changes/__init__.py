"""Changes tables and servers for a time, and restores them. Every change is recorded before it is made."""
