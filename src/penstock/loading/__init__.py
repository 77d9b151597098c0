"""Loads files into tables: plans a load, prepares it, streams its rows, and finishes it.

`plan.py` and its helpers decide and are pure; `run.py` carries a plan out with the threads of `feed.py` and
`session.py`. This package uses neither the lab nor AWS directly: credentials and connections arrive as callables.
"""
