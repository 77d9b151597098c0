"""Calls AWS: creates clients, makes calls, finds the instance of an endpoint, and has the values of answers."""
