"""Experiment C: how long inserts take when each commit covers so many rows, on one server and on topologies.

plan* chooses what runs, published* is what the article measured, run does it; SQL is server's, screens are cli's.
"""
