"""Connections: how a server is reached and verified, whose rights a session has, and what its errors mean."""
