"""Where notices and warnings go that nobody asked to hear: to Python's logging, whose last resort prints warnings."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from penstock.model.redaction import hide_secrets

if TYPE_CHECKING:
    from penstock.model.source.dialect import Notice

_log = logging.getLogger("penstock")


def log_notice(text: str) -> None:
    """Log what is done or waited for."""
    _log.info("%s", hide_secrets(text))


def log_warning(notice: Notice) -> None:
    """Log a warning, and where it points."""
    _log.warning("%s", hide_secrets(notice.message + ("" if notice.place is None else f" ({notice.place[:-1]})")))
