"""The limit of rejected records of a load, counted over all its sessions."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from penstock.errors import DataError, FileLocation
from penstock.model.load.reject import FOREIGN_KEY_VIOLATION, Reject

# How many rejected records an error quotes.
_SHOWN = 3


class RejectLimit:
    """Counts rejected records; all methods are safe from any thread.

    Records that violate a foreign key are not counted here, since the referenced row may still come; they are counted
    at the load's end.
    """

    def __init__(self, limit: int | None, *, before: int = 0) -> None:
        self._limit = limit
        self._count = before
        self._lock = threading.Lock()

    def note(self, rejects: Sequence[Reject], *, uris: dict[int, str]) -> None:
        """Count rejected records; raises DataError if there are too many."""
        final = [reject for reject in rejects if reject.reason.sqlstate != FOREIGN_KEY_VIOLATION]
        with self._lock:
            self._count += len(final)
            is_over = self._limit is not None and self._count > self._limit
        if is_over and final:
            assert self._limit is not None
            raise too_many_rejects(self._limit, final, uris=uris)


def too_many_rejects(limit: int, rejects: Sequence[Reject], *, uris: dict[int, str]) -> DataError:
    """Return the error for a load that rejected more records than it may; the error quotes some of the records."""
    first = rejects[0]
    records = "record was" if limit == 1 else "records were"
    return DataError(
        f"more than {limit} {records} rejected",
        detail="\n".join(describe_reject(reject, uri=uris[reject.object_number]) for reject in rejects[:_SHOWN]),
        hint="Correct the file or the options, or raise --max-rejects.",
        sqlstate=first.reason.sqlstate,
        location=FileLocation(file=uris[first.object_number], line=first.line, column=first.reason.column),
    )


def describe_reject(reject: Reject, *, uri: str) -> str:
    """Return the position and the reason of a rejected record in one line."""
    column = "" if reject.reason.column is None else f', column "{reject.reason.column}"'
    detail = "" if reject.reason.detail is None else f" ({reject.reason.detail})"
    return f"{uri} line {reject.line}{column}: {reject.reason.message}{detail}"
