"""Server settings for the length of a load: profiles as data, leases that put everything back.

profiles.py says what is changed (model/refusals.py what never is); values.py, decide.py and moves.py decide; lease.py
acts by ALTER SYSTEM, parameter_group.py in a parameter group of Amazon RDS. Every change is written down as a lease
before it is made.
"""
