"""The base class of objects that hold sessions, and functions that log messages if the caller passes no callback."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from typing import Self

from penstock.core.values.notice import Notice
from penstock.core.words import hide_secrets


class Closing(ABC):
    """An object that the caller closes, by `close` or as a context manager."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @abstractmethod
    def close(self) -> None:
        """Close the sessions and files that the object holds."""


_log = logging.getLogger("penstock")


def log_notice(text: str) -> None:
    """Log what a load does or waits for, at level INFO."""
    _log.info("%s", hide_secrets(text))


def log_warning(notice: Notice) -> None:
    """Log a warning with its file, line and column, at level WARNING."""
    _log.warning("%s", hide_secrets(notice.message + ("" if notice.location is None else f" ({notice.location[:-1]})")))
