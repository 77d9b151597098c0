"""Repeats the published experiments on this machine or on servers of the user. Package cli shows the results.

This is the only package that uses both penstock.lab and penstock.loading.
"""
