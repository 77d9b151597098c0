"""A definition is read again if a part of it was dropped meanwhile."""

from __future__ import annotations

import pytest

from penstock.changes.tables.definition import look_again
from penstock.core.errors import ServerError


@pytest.mark.parametrize(("code", "calls"), [("XX000", 3), ("57014", 1)])
def test_internal_errors_of_the_server_are_met_by_another_look(code: str, calls: int) -> None:
    """At most twice; other errors are raised at once."""
    seen: list[int] = []

    def read() -> None:
        seen.append(1)
        raise ServerError("cache lookup failed for attribute 1 of relation 1", sqlstate=code)

    with pytest.raises(ServerError):
        look_again(read)
    assert len(seen) == calls
