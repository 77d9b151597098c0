"""Copies pipes to temporary files, so that several sessions can read them, and more than once."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path

from penstock.errors import SourceError
from penstock.files.local import LocalObject, stat_object
from penstock.model.source.source import SourceObject


class Spool:
    """A temporary folder in TMPDIR that only its owner can read; `close` removes it."""

    def __init__(self) -> None:
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        # A load may be planned again, but a pipe can be read only once.
        self._copied: dict[str, SourceObject] = {}

    def copy(self, source: SourceObject) -> SourceObject:
        """Return a file with the whole content of a pipe, under the pipe's URI. Raises SourceError."""
        if (before := self._copied.get(source.location)) is not None:
            return before
        stored = LocalObject(source)
        path = None
        try:
            if self._folder is None:
                # Raises FileNotFoundError if TMPDIR, /tmp and the like are all full.
                self._folder = tempfile.TemporaryDirectory(prefix="penstock-spool-")
            path = Path(self._folder.name) / str(len(self._copied))
            with path.open("xb") as file:
                for piece in stored.pieces():
                    file.write(piece)
        except OSError as exc:
            raise SourceError(
                f'could not copy "{source.uri}" to a temporary file: {exc.strerror}',
                detail=None if path is None else f'The file is "{path}".',
                hint="Set TMPDIR to a folder with enough space, or do not use --spool.",
            ) from exc
        finally:
            stored.close()
        copied = stat_object(str(path), uri=source.uri)
        assert copied is not None
        spooled = self._copied[source.location] = replace(copied, uri=source.uri, is_spooled=True)
        return spooled

    def close(self) -> None:
        """Remove the copies."""
        folder, self._folder = self._folder, None
        if folder is not None:
            folder.cleanup()
