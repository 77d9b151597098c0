"""Servers whose clock is another than the machine's, by libfaketime."""

from __future__ import annotations

import os
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from unittest.mock import patch

from penstock.lab import programs

if TYPE_CHECKING:
    from collections.abc import Iterator

# Debian's package libfaketime, for programs with threads.
_LIBRARY = Path("/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1")

HAS_FAKETIME = _LIBRARY.exists()

_VARIABLES = (*programs._INHERITED_VARIABLES, "LD_PRELOAD", "FAKETIME")


@contextmanager
def faking_time(shift: str) -> Iterator[None]:
    """Give servers that are started within the block a clock that is wrong by `shift`, as in "-1h"."""
    values = {"LD_PRELOAD": str(_LIBRARY), "FAKETIME": shift}
    with patch.object(programs, "_INHERITED_VARIABLES", _VARIABLES), patch.dict(os.environ, values):
        yield
