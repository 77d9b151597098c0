"""The lab: real parts on this machine, no cloud account: embedded PostgreSQL servers, IMDb-like data.

All subprocesses are started in this room. It connects to nothing by SQL and loads nothing.
"""

from __future__ import annotations

from penstock.lab.embedded import EmbeddedServer, ServerStatus, default_server

__all__ = ["EmbeddedServer", "ServerStatus", "default_server"]
