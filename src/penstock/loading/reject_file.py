"""Files of rejected records: byte for byte, in the dialect of the files they come from, below its header."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING

from penstock.errors import SourceError, TargetError
from penstock.files.blocks import BlockReader, make_cutter
from penstock.files.encodings import byte_order_mark, encode_again, transcode
from penstock.loading.again import find_line_end
from penstock.loading.form import form_from_json, make_origin
from penstock.loading.pieces import Piece
from penstock.server.ledger.rejects import RejectStore

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.loading.tools import LoadTools
    from penstock.model.reject import RecordForm
    from penstock.server.connection import Connection

_LINE_ENDS = {"lf": b"\n", "crlf": b"\r\n", "cr": b"\r", None: b""}


def write_reject_files(load_id: str, path: Path, tools: LoadTools, connection: Connection) -> list[Path]:
    """Write all rejected records of a load; return the files, more than one where headers or dialects differ.

    Each file appears whole or not at all; without rejected records there is none. Raises SourceError, ServerError.
    """
    store = RejectStore(tools.ledger.schema, load_id)
    forms = {number: form_from_json(item.form) for number, item in store.read_forms(connection).items()}
    writers: dict[tuple[object, ...], _Writer] = {}
    try:
        for rejects in store.read_all(connection):
            for reject in rejects:
                form = forms[reject.object_number]
                key = _form_key(form)
                if key not in writers:
                    writers[key] = _Writer(_number_path(path, len(writers) + 1), form)
                writers[key].write(reject.raw)
        for writer in writers.values():
            writer.finish()
    except OSError as exc:
        raise SourceError(f'could not write "{path}": {exc.strerror}') from exc
    finally:
        for writer in writers.values():
            writer.discard()
    return [writer.path for writer in writers.values()]


def read_reject_file(load_id: str, path: Path, tools: LoadTools, connection: Connection) -> list[bytes]:
    """Return the records of an edited reject file. Raises SourceError, DataError, TargetError."""
    stored = RejectStore(tools.ledger.schema, load_id).read_forms(connection)
    if not stored:
        raise TargetError(f"load {load_id} has rejected no records", hint="See penstock loads.")
    forms = {number: form_from_json(item.form) for number, item in stored.items()}
    if len({_form_key(form) for form in forms.values()}) > 1:
        raise TargetError(
            "the rejected records of this load do not fit into one file",
            detail="They come from files with different headers, dialects or tables.",
            hint=f"Load the edited files by themselves, or say penstock retry {load_id} without a file.",
        )
    number, form = next(iter(forms.items()))
    try:
        data = path.read_bytes()
    except OSError as exc:
        raise SourceError(f'could not read "{path}": {exc.strerror}') from exc
    origin = make_origin(form, number=number, uri=str(path), server_major=tools.server_major)
    data = data.removeprefix(byte_order_mark(form.bom))
    pieces = transcode([data], encoding=form.dialect.encoding, uri=str(path))
    blocks = BlockReader(pieces, make_cutter(form.dialect, server_major=tools.server_major), uri=str(path))
    if form.header is not None:
        blocks.take_header()
    cut = [Piece(origin=origin, block=block) for block in blocks if block.records]
    return [piece.raw(record) for piece in cut for record in range(piece.records)]


def _form_key(form: RecordForm) -> tuple[object, ...]:
    return form.header, form.dialect, form.table, form.column_map.columns


def _number_path(path: Path, number: int) -> Path:
    return path if number == 1 else path.with_name(f"{path.stem}-{number}{path.suffix}")


class _Writer:
    """Writes one file under another name, and gives it its own at the end."""

    def __init__(self, path: Path, form: RecordForm) -> None:
        self.path = path
        self._unfinished = path.with_name(f".{path.name}.unfinished")
        # What is rejected may be as private as the files it comes from.
        descriptor = os.open(self._unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        self._file = os.fdopen(descriptor, "wb")
        self._encoding = form.dialect.encoding
        self._file.write(byte_order_mark(form.bom))
        self._line_end: bytes | None = None
        self._is_ended = True
        if form.header is not None:
            self.write(form.header)

    def write(self, raw: bytes) -> None:
        line_end = find_line_end(raw)
        if self._line_end is None:
            self._line_end = _LINE_ENDS[line_end] or b"\n"
        if not self._is_ended:
            raw = self._line_end + raw
        self._file.write(encode_again(raw, encoding=self._encoding))
        self._is_ended = line_end is not None

    def finish(self) -> None:
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        self._unfinished.replace(self.path)

    def discard(self) -> None:
        with suppress(OSError):
            self._file.close()
            self._unfinished.unlink(missing_ok=True)
