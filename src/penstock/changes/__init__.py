"""What somebody else's table or server is changed to while loading, and how it is restored: one journal for all kinds.

Each change is written down and committed before it is made, and its record ends with what restores it. A step of a load
decides what is changed; a kind (kinds/) knows how one sort of thing is found, made, looked at and restored.
"""
