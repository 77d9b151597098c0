"""The difference between two clocks, and facts that could not be read. Inspections and recordings have both."""

from __future__ import annotations

from penstock.frozen import frozen


@frozen
class Clock:
    """How far the server's clock is ahead of this host's clock."""

    ahead_s: float
    # Half a round trip.
    error_s: float


@frozen
class Unread:
    """Something that could not be read, and the server's message."""

    what: str
    why: str
