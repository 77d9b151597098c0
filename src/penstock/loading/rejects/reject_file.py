"""Writes and reads reject files: the header, then the records byte for byte, in the dialect of their source files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from itertools import islice
from pathlib import Path

from penstock.core.connect.connection import Connection
from penstock.core.errors import SourceError, TargetError
from penstock.core.newfile import NewFile, could_not_write
from penstock.core.units import count_nouns
from penstock.core.values.table import TableName
from penstock.ledger.listing import list_objects
from penstock.ledger.rejects import RecordForm, RejectStore, StoredForm
from penstock.loading.context import LoadTools
from penstock.loading.files.encodings import (
    byte_order_mark,
    detect_bom,
    encode_again,
    normalize_encoding,
    transcode,
)
from penstock.loading.formats.blocks import BlockReader, TornReader, make_cutter
from penstock.loading.rejects.pieces import Piece, find_line_end, form_from_json, make_origin

_LINE_ENDS = {"lf": b"\n", "crlf": b"\r\n", "cr": b"\r", None: b""}


def write_reject_files(load_id: str, path: Path, schema: str, connection: Connection) -> list[Path]:
    """Write all rejected records of a load to files, and return the paths of these files.

    There is a file for each combination of header, dialect, table and columns. The first is `path`. The names of the
    others have a number, such as rejects-2.csv. A file appears only when it is complete, and never replaces one of the
    load's sources. Without rejected records no file is written. `schema` is the ledger's schema. Raises SourceError,
    ServerError.
    """
    store = RejectStore(schema, load_id)
    sources = [item.uri for item in list_objects(connection, schema, load_id)]
    forms = {number: form_from_json(item.form) for number, item in store.read_forms(connection).items()}
    writers: dict[tuple[object, ...], _Writer] = {}
    try:
        with ExitStack() as open_files:
            for rejects in store.read_all(connection):
                for reject in rejects:
                    form = forms[reject.object_number]
                    key = _form_key(form)
                    if key not in writers:
                        file = NewFile(_number_path(path, len(writers) + 1), sources=sources)
                        writers[key] = _Writer(open_files.enter_context(file), form)
                    writers[key].write(reject.raw)
            for writer in writers.values():
                writer.file.finish()
    except OSError as exc:
        raise could_not_write(path, exc) from exc
    return [writer.file.path for writer in writers.values()]


def read_reject_file(
    load_id: str, path: Path, tools: LoadTools, connection: Connection, *, into: TableName | None = None
) -> dict[tuple[int, int], bytes]:
    """Return the records of an edited reject file, each by the rejected record that it replaces.

    A key is the number of the object and the offset of the rejected record in it. The header shows which of the load's
    reject files was edited. If several have the same header, `into` names the table. The file is cut into records by
    the number of lines that were written for each record. By the dialect's rules, a stray quote could join a record
    with the next one; these rules are used if lines were added or removed. Raises SourceError, DataError, TargetError
    (also if the file has another number of records).
    """
    store = RejectStore(tools.ledger.schema, load_id)
    stored = store.read_forms(connection)
    if not stored:
        raise TargetError(f"load {load_id} has rejected no records", hint="See penstock loads.")
    try:
        data = path.read_bytes()
    except OSError as exc:
        raise SourceError(f'could not read "{path}": {exc.strerror}') from exc
    forms = {number: form_from_json(item.form) for number, item in stored.items()}
    numbers = _find_objects(data, stored, forms, path, load_id=load_id, into=into)
    rejects = [reject for some in store.read_all(connection, objects=numbers) for reject in some]
    records = _cut(data, forms[numbers[0]], [reject.raw for reject in rejects], path, tools)
    if len(records) != len(rejects):
        raise TargetError(
            f"the file has {count_nouns(len(records), 'record')}, and the load has {len(rejects)} rejected ones",
            detail="Each record of the file takes the place of the rejected one in the same place. One that is not"
            " corrected yet stays in the file as it is, and stays rejected.",
            hint=f"Write them again with penstock rejects {load_id} --reject-file PATH, and edit that.",
        )
    if forms[numbers[0]].dialect.format == "jsonl" and not all(record.strip() for record in records):
        raise TargetError(
            f'a record of "{path}" is empty', hint="Leave a record as it is in the file, and it stays rejected."
        )
    pairs = zip(rejects, records, strict=True)
    return {(reject.object_number, reject.start): record for reject, record in pairs}


def _find_objects(
    data: bytes,
    stored: Mapping[int, StoredForm],
    forms: Mapping[int, RecordForm],
    path: Path,
    *,
    load_id: str,
    into: TableName | None,
) -> list[int]:
    """Return the numbers of the objects whose rejected records a reject file has. Raises TargetError."""
    groups: dict[tuple[object, ...], list[int]] = {}
    for number, form in forms.items():
        groups.setdefault(_form_key(form), []).append(number)
    found = [numbers for numbers in groups.values() if _has_header(data, forms[numbers[0]])]
    if into is not None:
        found = [numbers for numbers in found if _is_named(stored[numbers[0]].table, into)]
    if not found:
        raise TargetError(
            f'"{path}" is no reject file of load {load_id}',
            detail=f"No reject file of the load{'' if into is None else f' for table {into}'} has its first line.",
            hint=f"Write them again with penstock rejects {load_id} --reject-file PATH, and keep the header in them.",
        )
    if len(found) > 1:
        # Files may differ only in how their lines end.
        exact = [each for each in found if _without_mark(data, forms[each[0]]).startswith(_header(forms[each[0]]))]
        found = exact if len(exact) == 1 else found
    if len(found) > 1:
        tables = list(dict.fromkeys(stored[numbers[0]].table for numbers in found))
        names = ", ".join(f'"{table}"' for table in tables)
        raise TargetError(
            f'the records of "{path}" may belong to several reject files of load {load_id}',
            detail=f"Those have the same header, and tables {names}."
            if len(tables) > 1
            else f"Those have the same header, other dialects, and table {names}.",
            hint=f"Name the table with --into {tables[0]}."
            if len(tables) > 1
            else f"Load the file by itself. penstock rejects {load_id} --discard then removes all rejected records.",
        )
    return found[0]


def _is_named(table: TableName, name: TableName) -> bool:
    return table.name == name.name and name.schema in (None, table.schema)


def _has_header(data: bytes, form: RecordForm) -> bool:
    """Return whether a file begins with the header of a reject file. Its line ends may have changed."""
    if form.header is None:
        return True
    encoding = form.dialect.encoding
    text = _without_mark(data, form)
    header = encode_again(form.header.rstrip(b"\r\n"), encoding=encoding)
    rest = text[len(header) :]
    ends = tuple(encode_again(mark, encoding=encoding) for mark in (b"\n", b"\r"))
    return text.startswith(header) and (not rest or rest.startswith(ends))


def _without_mark(data: bytes, form: RecordForm) -> bytes:
    """Return an edited file without a byte-order mark of its encoding, which programs that save files may add."""
    found = detect_bom(data)
    if found is None or found[0] not in (form.bom, normalize_encoding(form.dialect.encoding)):
        return data
    return data[found[1] :]


def _header(form: RecordForm) -> bytes:
    return encode_again(form.header or b"", encoding=form.dialect.encoding)


def _cut(data: bytes, form: RecordForm, raws: Sequence[bytes], path: Path, tools: LoadTools) -> list[bytes]:
    """Return the records of an edited file without its header. `raws` are the records that were written to it."""
    origin = make_origin(form, number=0, uri=str(path), server_major=tools.server_major)
    data = _without_mark(data, form)
    pieces = list(transcode([data], encoding=form.dialect.encoding, uri=str(path)))
    if raws and (parts := _cut_as_written(b"".join(pieces), [form.header or b"", *raws])):
        return list(parts[1:])
    kind = TornReader if form.dialect.format == "csv" else BlockReader
    blocks = kind(pieces, make_cutter(form.dialect, server_major=tools.server_major), uri=str(path))
    if isinstance(blocks, TornReader):
        blocks.field_count, blocks.ends_empty = form.column_map.field_count, form.column_map.ends_empty
    if form.header is not None:
        blocks.take_header()
    cut = [Piece(origin=origin, block=block) for block in blocks if block.records]
    return [piece.raw(record) for piece in cut for record in range(piece.records)]


def _cut_as_written(data: bytes, raws: Sequence[bytes]) -> Sequence[bytes] | None:
    r"""Return data split into as many lines as each record had.

    Return None if the number of lines, or a record of several lines, has changed.

    >>> _cut_as_written(b'1,x\n2,"x\n', [b'1,x"\n', b'2,"x\n'])
    [b'1,x\n', b'2,"x\n']
    """
    line_end = _LINE_ENDS[find_line_end(next(raw for raw in raws if raw))] or b"\n"
    written = b"".join(raw if find_line_end(raw) or not raw else raw + line_end for raw in raws)
    if data.rstrip(b"\r\n") == written.rstrip(b"\r\n"):
        return raws
    lines = data.splitlines(keepends=True)
    counts = [len(raw.splitlines()) for raw in raws]
    if len(lines) != sum(counts):
        return None
    left = iter(lines)
    parts = [b"".join(islice(left, count)) for count in counts]
    is_kept = (part.startswith(raw) for part, raw, count in zip(parts, raws, counts, strict=True) if count > 1)
    return parts if all(is_kept) else None


def _form_key(form: RecordForm) -> tuple[object, ...]:
    return form.header, form.dialect, form.table, form.column_map.columns


def _number_path(path: Path, number: int) -> Path:
    return path if number == 1 else path.with_name(f"{path.stem}-{number}{path.suffix}")


class _Writer:
    """Writes records to one file, each on its own line."""

    def __init__(self, file: NewFile, form: RecordForm) -> None:
        self.file = file
        self._encoding = form.dialect.encoding
        self.file.write(byte_order_mark(form.bom))
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
        self.file.write(encode_again(raw, encoding=self._encoding))
        self._is_ended = line_end is not None
