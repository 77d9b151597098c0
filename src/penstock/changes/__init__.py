"""Records, makes and restores changes of tables and of the whole server, with one journal for all kinds of change.

The record of each change is committed before the change is made, together with the load or command that needs it. A
step of a load, or a command, decides what is changed. A kind (kinds/) checks and restores one sort of object. A store
(store/) has the records.
"""
