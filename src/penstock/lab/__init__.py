"""The lab: real parts on this machine, no cloud account: embedded servers, topologies of them, IMDb-like data.

All subprocesses are started in this room. It loads nothing, and asks servers only whether they work together.
"""

from __future__ import annotations

from penstock.lab.embedded import EmbeddedServer, ServerStatus, default_server

__all__ = ["EmbeddedServer", "ServerStatus", "default_server"]
