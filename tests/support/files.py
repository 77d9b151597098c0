"""Files as tests need them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def write_to(path: Path, data: str | bytes) -> Path:
    """Write a file, text as UTF-8, and return its path."""
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    return path
