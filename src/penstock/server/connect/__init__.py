"""Connections: how a server is reached and verified, which rights a session has, and what its errors mean."""
