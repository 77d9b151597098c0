"""Experiment A: psql and penstock load IMDb's files, on volumes like the article's. Then a server recovers.

plan scales the article's machine and judges runs. published has the article's measurements. run starts the servers, and
measure runs the steps. The SQL is in package server, the output in package cli.
"""
