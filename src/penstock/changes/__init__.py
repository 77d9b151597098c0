"""Tables and servers changed for a time, and restored: every change is recorded before it is made."""
