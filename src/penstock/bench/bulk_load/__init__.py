"""Experiment A: IMDb's files loaded by psql and by penstock, on volumes like the article's, and a recovery.

plan* scales the article's machine and judges runs, published* holds its measurements, run brings servers up, measure
runs the steps. SQL is in server, output in cli.
"""
