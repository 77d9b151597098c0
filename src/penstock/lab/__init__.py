"""Runs PostgreSQL servers on this machine, the embedded server and labs of several servers, and writes data sets.

Only this package starts subprocesses of penstock. It loads no data. Its only SQL asks whether servers replicate.
"""

from __future__ import annotations

from penstock.lab.embedded import EmbeddedServer, ServerStatus, default_server

__all__ = ["EmbeddedServer", "ServerStatus", "default_server"]
