"""Decides which settings to change during a load. Pure.

profiles.py lists the settings that a profile changes; model/refusals.py has those that are never changed. values.py and
decide.py decide.
"""
