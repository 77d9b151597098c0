"""Records, makes and restores changes of tables and of the whole server: one journal for all kinds of change.

Each change is recorded and committed before it is made, with the load or command that needs it. A step of a load, or a
command, decides what is changed; a kind (kinds/) checks and restores one sort of object; a store (store/) has the
records.
"""
