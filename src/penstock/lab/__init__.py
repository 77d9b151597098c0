"""The lab: embedded PostgreSQL servers, topologies of them, and made-up data sets, on this machine, without a cloud.

All subprocesses are started in this room. It loads no data, and the only SQL it runs asks whether servers replicate.
"""

from __future__ import annotations

from penstock.lab.embedded import EmbeddedServer, ServerStatus, default_server

__all__ = ["EmbeddedServer", "ServerStatus", "default_server"]
