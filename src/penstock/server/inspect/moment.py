"""Reads what changes on a server from moment to moment, and how far its clock is ahead."""

from __future__ import annotations

from collections.abc import Callable

from penstock.frozen import frozen
from penstock.model.server.reading import Clock
from penstock.server.connect.connection import Connection
from penstock.server.connect.errors import translate_errors
from penstock.server.sql.queries import fetch_rows


@frozen
class MomentRow:
    """The row of inspect_moment.sql."""

    clock_s: float
    autovacuum_workers: int | None


def read_moment(connection: Connection, clock: Callable[[], float]) -> tuple[MomentRow, Clock]:
    """Return what changes from moment to moment, and the difference between the server's clock and this host's."""
    before_s = clock()
    with translate_errors("reading the server's clock"):
        (moment,) = fetch_rows(connection, "inspect_moment", MomentRow)
    after_s = clock()
    half_s = (after_s - before_s) / 2
    return moment, Clock(ahead_s=moment.clock_s - before_s - half_s, error_s=half_s)
