"""What is changed at tables, or of the whole server, and how it is restored: one journal for all kinds.

Each change is recorded and committed before it is made, together with who wants it. A step of a load, or a command,
decides what is changed; a kind (kinds/) says how one sort of thing is looked at and restored; a store (store/) has the
records.
"""
