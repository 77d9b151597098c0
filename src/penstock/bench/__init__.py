"""Repeats the published experiments on this machine or on servers of the user. The command line shows the results.

This is the only package that uses both penstock.lab and penstock.loading.
"""
