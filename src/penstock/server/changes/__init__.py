"""Reads and writes the records of a load's changes of a table, and runs the SQL that makes and restores changes.

A record is committed before its change is made. No record says whether the change was made: the catalogue shows it. The
records of one table are written, and its changes restored, under an advisory lock of that table (shape_lock). The
journal in the package changes/ keeps this order.
"""
