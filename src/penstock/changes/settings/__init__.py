"""What settings help for the length of a load: profiles as data, and what is decided about them. Pure.

profiles.py says what is changed (model/refusals.py what never is); values.py and decide.py decide.
"""
