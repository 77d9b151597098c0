"""Server settings for the length of a load: profiles as data, leases that restore everything.

profiles.py says what is changed (model/refusals.py what never is); values.py, decide.py and moves.py decide; leases.py
is the one way in which leases are taken and end, by ALTER SYSTEM (backend.py) or in a parameter group of Amazon RDS
(parameter_group.py). Every change is written down as a lease before it is made.
"""
