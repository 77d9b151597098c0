"""Recognizes by their names the files of a folder that a load skips: hidden, incomplete, or markers of other tools."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from penstock.model.source.dialect import Notice

OnNotice = Callable[[Notice], None]

# The beginnings are those of Hadoop's FileInputFormat (_SUCCESS, _temporary, ._COPYING_); the endings are those of
# incomplete files and of checksums.
_BEGINNINGS = (".", "_")
_ENDINGS = (".tmp", ".part", ".crc")


def is_skipped(name: str) -> bool:
    """Return whether a file or folder of this name is skipped, unless the user names it as a source.

    >>> [is_skipped(name) for name in ("_SUCCESS", ".a.csv.crc", "b.csv.part", "part-0.csv")]
    [True, True, True, False]
    """
    return name.startswith(_BEGINNINGS) or name.endswith(_ENDINGS)


def note_skipped_files(names: Sequence[str], on_notice: OnNotice) -> None:
    """Report the first of the skipped files that have data; hidden files are not reported."""
    shown = [name for name in names if not name.rpartition("/")[2].startswith(".")]
    if shown:
        more = f" (and {len(shown) - 1} more like it)" if len(shown) > 1 else ""
        message = f'file "{shown[0]}" is skipped by its name{more}'
        on_notice(Notice(code="file-skipped", message=message, uri=shown[0], hint="To load it, name it."))


def note_empty(folder: str) -> Notice:
    """Return the notice that a folder has no files to load."""
    return Notice(code="folder-empty", message=f"{folder} holds no files to load")
