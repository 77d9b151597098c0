"""What an error says by its code instead of its words, which one test for each message repeats."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.core.errors import PenstockError

if TYPE_CHECKING:
    from collections.abc import Callable


def has_code(sqlstate: str) -> Callable[[BaseException], bool]:
    """Return a check for pytest.raises: the server's code of the error is `sqlstate`."""
    return lambda error: isinstance(error, PenstockError) and error.sqlstate == sqlstate
