"""What a load changes at a table: its records, and the SQL by which each kind is found, made, looked at and restored.

A record is committed before its change is made. Whether the change was made is never written down: the catalogue is
looked at. The records of one table are written, and things restored, under a lock of that table's (shape_lock). The
room changes/ has the journal, which sees to this order.
"""
