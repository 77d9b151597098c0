"""How AWS is asked: clients, calls, the instance of an endpoint, and the values of its answers."""
