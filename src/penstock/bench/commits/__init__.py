"""Experiment C: how long inserts take for different numbers of rows in a commit, on one server and on topologies.

plan* chooses what runs, published* holds the article's measurements, run runs it. SQL is in server, output in cli.
"""
