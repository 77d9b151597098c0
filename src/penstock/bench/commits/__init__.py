"""Experiment C: how long inserts take for different numbers of rows in a commit, on one server and on topologies.

plan chooses what runs, published has the article's measurements, run runs it. The SQL is in package server, the output
in package cli.
"""
