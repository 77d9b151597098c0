"""The file of a transform: read when the job is made, since the load may go on where the file is not."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.errors import UsageError
from penstock.model.job import Transform

if TYPE_CHECKING:
    from pathlib import Path


def read_transform(path: Path) -> Transform:
    """Return the statement in a file. Raises UsageError."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as exc:
        raise UsageError(f'could not read transform "{path}": {exc.strerror}') from exc
    except UnicodeDecodeError as exc:
        raise UsageError(f'transform "{path}" is not UTF-8', detail=f"Byte {exc.start} is not.") from exc
    if "\0" in text:
        raise UsageError(f'transform "{path}" holds a NUL character')
    return Transform(name=path.name, text=text)
