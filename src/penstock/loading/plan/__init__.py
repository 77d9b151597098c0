"""Decides what a load will do, from its sources, its tables and the server, before anything is changed."""
