"""Decides which settings to change during a load. Pure.

profiles.py lists the settings (model/refusals.py those that are never changed); values.py and decide.py decide.
"""
