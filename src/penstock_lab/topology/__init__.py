"""Topologies of servers: a single server, a server with standbys, a server with six receivers of its WAL."""
