"""What the acting modules of this room act through."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.files import SourceReader
    from penstock.model.outcome import LoadProgress
    from penstock.server.connection import ConnectionFactory


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadTools:
    """Connections, sources, the clock, and who wants to hear of progress and of notices."""

    connect: ConnectionFactory
    sources: SourceReader
    server_major: int
    on_progress: Callable[[LoadProgress], None] | None = None
    on_notice: Callable[[str], None] | None = None
    clock: Callable[[], float] = time.perf_counter
