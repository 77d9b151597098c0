"""What a reading of a server may lack, and when it was. Apart from inspections, which a recording does not need."""

from __future__ import annotations

from penstock.frozen import frozen


@frozen
class Clock:
    """How far the server's clock is ahead of this host's clock; `error_s` is half a round trip. Both are in seconds."""

    ahead_s: float
    error_s: float


@frozen
class Unread:
    """Something that could not be read, and the server's message."""

    what: str
    why: str
