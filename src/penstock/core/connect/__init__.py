"""Connections to PostgreSQL: connection strings, TLS, tunnels, search_path, and the server's errors."""
