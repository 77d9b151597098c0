"""Calls AWS: creates clients, makes calls, finds the instance of an endpoint, and defines the values of the answers."""
