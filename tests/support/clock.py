"""Servers whose clock is another than the machine's, by libfaketime."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.embedded.server import EmbeddedServer

# Debian's package libfaketime, for programs with threads.
_LIBRARY = Path("/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1")

HAS_FAKETIME = _LIBRARY.exists()


def with_clock(server: EmbeddedServer, shift: str) -> EmbeddedServer:
    """Return the server with a clock that is wrong by `shift`, as in "-1h", from its next start."""
    environment = {"LD_PRELOAD": str(_LIBRARY), "FAKETIME": shift}
    return replace(server, spec=replace(server.spec, environment=environment))
