"""Logs notices and warnings that no callback takes. Without a handler, Python's logging prints warnings to stderr."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from penstock.model.redaction import hide_secrets

if TYPE_CHECKING:
    from penstock.model.source.dialect import Notice

_log = logging.getLogger("penstock")


def log_notice(text: str) -> None:
    """Log what a load does or waits for, at level INFO."""
    _log.info("%s", hide_secrets(text))


def log_warning(notice: Notice) -> None:
    """Log a warning with its file, line and column."""
    _log.warning("%s", hide_secrets(notice.message + ("" if notice.location is None else f" ({notice.location[:-1]})")))
