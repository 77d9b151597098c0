"""Files of a folder that are no data by their names: hidden, marks of other tools, not whole yet."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from penstock.model.source.dialect import Notice

if TYPE_CHECKING:
    from collections.abc import Sequence

OnNotice = Callable[[Notice], None]

# As Hadoop's FileInputFormat has it: _SUCCESS, _temporary, ._COPYING_; and what is being written, or a checksum.
_BEGINNINGS = (".", "_")
_ENDINGS = (".tmp", ".part", ".crc")


def is_skipped(name: str) -> bool:
    """Whether a file, or folder, of that name is skipped where a folder is loaded and nobody has named it.

    >>> [is_skipped(name) for name in ("_SUCCESS", ".a.csv.crc", "b.csv.part", "part-0.csv")]
    [True, True, True, False]
    """
    return name.startswith(_BEGINNINGS) or name.endswith(_ENDINGS)


def note_skipped_files(names: Sequence[str], on_notice: OnNotice) -> None:
    """Tell of files that have data and are skipped; hidden and empty ones are nobody's surprise."""
    shown = [name for name in names if not name.rpartition("/")[2].startswith(".")]
    if shown:
        more = f" (and {len(shown) - 1} more like it)" if len(shown) > 1 else ""
        message = f'file "{shown[0]}" is skipped by its name{more}'
        on_notice(Notice(code="file-skipped", message=message, uri=shown[0], hint="To load it, name it."))


def note_empty(folder: str) -> Notice:
    """Return what is told of a folder without files to load."""
    return Notice(code="folder-empty", message=f"{folder} holds no files to load")
