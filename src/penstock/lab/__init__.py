"""Runs PostgreSQL servers on this machine: the embedded server, and labs of several servers; makes up data sets.

All subprocesses of penstock are started in this room. The room loads no data. The only SQL that it runs asks whether
servers replicate.
"""

from __future__ import annotations

from penstock.lab.embedded import EmbeddedServer, ServerStatus, default_server

__all__ = ["EmbeddedServer", "ServerStatus", "default_server"]
