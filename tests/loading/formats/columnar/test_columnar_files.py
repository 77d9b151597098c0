"""Columnar files as other programs write them, damaged ones, and what is refused."""

from __future__ import annotations

import gzip
import io
import os
import threading
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock
from loading.formats.columnar.flips import read_rows
from penstock.core.errors import DataError, PenstockError, SourceError, TargetError, UsageError
from penstock.core.values.job import LoadRules
from penstock.loading.files.columnar.reader import SentColumn
from penstock.loading.files.streams import SourceReader
from support.loads import AGAIN, Loads, target
from support.parts import rest

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Sequence

_ROWS = [(n, f"value {n % 7}" if n % 5 else None, n / 8) for n in range(3_000)]
_TABLE = pa.table(
    {
        "id": pa.array([row[0] for row in _ROWS], pa.int32()),
        "name": [row[1] for row in _ROWS],
        "share": [row[2] for row in _ROWS],
    }
)


def _rows(loads: Loads, table: str = "t") -> list[Any]:
    return loads.execute(f"SELECT id, name, share FROM {table} ORDER BY id")


@pytest.mark.parametrize("codec", ["none", "snappy", "gzip", "zstd", "brotli", "lz4"])
@pytest.mark.parametrize("version", ["1.0", "2.0"])
def test_codecs_and_pages(loads: Loads, write_parquet: Callable[..., Path], codec: str, version: str) -> None:
    """With dictionaries and without, in pages of both versions."""
    for has_dictionary in (False, True):
        path = write_parquet(
            _TABLE,
            name=f"{has_dictionary}",
            compression=codec,
            data_page_version=version,
            use_dictionary=has_dictionary,
            row_group_size=1_000,
            data_page_size=500,
        )
        loads.run(target(path, into=f"t{int(has_dictionary)}", create=True))
        assert _rows(loads, f"t{int(has_dictionary)}") == _ROWS


_ENCODED = {
    "delta": (pa.array([None, *range(0, 5_998, 2)]), "DELTA_BINARY_PACKED"),
    "small": (pa.array([n % 5 - 2 for n in range(3_000)], pa.int32()), "DELTA_BINARY_PACKED"),
    "lengths": (pa.array([row[1] for row in _ROWS]), "DELTA_LENGTH_BYTE_ARRAY"),
    "prefixes": (pa.array([f"prefix {n // 3}" if n % 4 else None for n in range(3_000)]), "DELTA_BYTE_ARRAY"),
    "split": (pa.array([row[2] for row in _ROWS]), "BYTE_STREAM_SPLIT"),
    "split4": (pa.array([n / 4 for n in range(3_000)], pa.float32()), "BYTE_STREAM_SPLIT"),
    "split16": (pa.array([n.to_bytes(16, "big") for n in range(3_000)], pa.binary(16)), "BYTE_STREAM_SPLIT"),
    "flags": (pa.array([None if n % 7 == 0 else n % 3 == 0 for n in range(3_000)]), "RLE"),
    "plain": (pa.array([row[1] for row in _ROWS]), "PLAIN"),
    "lists": (pa.array([[None, "x"] * (n % 3) if n % 5 else None for n in range(3_000)]), None),
    "parts": (pa.array([{"a": n, "b": [{"c": None}] * (n % 2)} if n % 6 else None for n in range(3_000)]), None),
}


@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_values_of_every_encoding_are_those_that_pyarrow_reads(
    loads: Loads, write_parquet: Callable[..., Path], version: str, codec: str
) -> None:
    """In pages of both versions, with page indexes and bloom filters, in row groups of which one has a single row."""
    path = write_parquet(
        {name: array for name, (array, _) in _ENCODED.items()},
        compression=codec,
        data_page_version=version,
        use_dictionary=False,
        column_encoding={name: encoding for name, (_, encoding) in _ENCODED.items() if encoding},
        row_group_size=2_999,
        data_page_size=700,
        write_page_index=True,
    )
    loads.run(target(path, create=True))
    found = loads.execute("SELECT * FROM t ORDER BY split")
    assert found == list(zip(*(column.to_pylist() for column in pq.read_table(path).columns), strict=True))


@pytest.mark.parametrize("codec", ["lz4", "zstd", None])
def test_arrow_batches_may_be_compressed(loads: Loads, tmp_path: Path, codec: str | None) -> None:
    """As pandas and polars write Feather files."""
    path = tmp_path / "f.feather"
    options = pa.ipc.IpcWriteOptions(compression=codec)
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, _TABLE.schema, options=options) as writer:
        writer.write_table(_TABLE, 700)
    loads.run(target(path, create=True))
    assert _rows(loads) == _ROWS


def test_arrow_messages_may_be_older_than_the_footer(loads: Loads, tmp_path: Path) -> None:
    """As pyarrow writes messages of version 4."""
    path = tmp_path / "v4.arrow"
    options = pa.ipc.IpcWriteOptions(metadata_version=pa.ipc.MetadataVersion.V4)
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, _TABLE.schema, options=options) as writer:
        writer.write_table(_TABLE, 700)
    loads.run(target(path, create=True))
    assert _rows(loads) == _ROWS


def test_short_decimals_may_have_long_byte_strings(loads: Loads, tmp_path: Path) -> None:
    """As other writers store decimals of up to 18 digits: made here by a change of the precision in a footer."""
    path, table = (
        tmp_path / "d.parquet",
        pa.table({"d": pa.array([Decimal("1.50"), None, Decimal("-7.25")], pa.decimal128(25, 2))}),
    )
    pq.write_table(table, path, store_schema=False, write_statistics=False, compression="none")
    data = path.read_bytes()
    footer = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    path.write_bytes(data[:footer] + data[footer:].replace(b"\x32", b"\x14"))
    assert pq.read_table(path).schema.field("d").type == pa.decimal128(10, 2)
    loads.run(target(path, create=True))
    assert loads.execute("SELECT d FROM t ORDER BY d") == [(Decimal("-7.25"),), (Decimal("1.50"),), (None,)]


@pytest.mark.part("rest")
def test_files_of_polars_and_duckdb(loads: Loads, tmp_path: Path) -> None:
    """Their writers are not pyarrow's."""
    polars, duckdb = pytest.importorskip("polars"), pytest.importorskip("duckdb")
    frame = polars.from_arrow(_TABLE)
    frame.write_parquet(tmp_path / "p.parquet")
    frame.write_ipc(tmp_path / "p.arrow")
    duckdb.sql("FROM frame").write_parquet(str(tmp_path / "d.parquet"))
    for name in ("p.parquet", "p.arrow", "d.parquet"):
        table = f"t_{name.replace('.', '_')}"
        loads.run(target(tmp_path / name, into=table, create=True))
        assert _rows(loads, table) == _ROWS


@pytest.mark.part("rest")
def test_row_groups_may_be_empty(loads: Loads, tmp_path: Path) -> None:
    """First, between others, and last."""
    path = tmp_path / "f.parquet"
    with pq.ParquetWriter(path, _TABLE.schema) as writer:
        for part in (
            _TABLE.slice(0, 0),
            _TABLE.slice(0, 2_000),
            _TABLE.slice(0, 0),
            _TABLE.slice(2_000),
            _TABLE.slice(0, 0),
        ):
            writer.write_table(part)
    loads.run(target(path, create=True))
    assert _rows(loads) == _ROWS


@pytest.mark.parametrize("file_format", ["parquet", "arrow"])
def test_file_without_rows_makes_its_table_and_is_loaded(
    loads: Loads, write_parquet: Callable[..., Path], write_arrow: Callable[..., Path], file_format: str
) -> None:
    """Unlike an empty text file, it has columns. It is not loaded again."""
    path = (write_parquet if file_format == "parquet" else write_arrow)(_TABLE.slice(0, 0))
    assert loads.run(target(path, create=True)).rows == 0
    assert _rows(loads) == []
    assert loads.run(target(path)).objects_skipped == 1


@pytest.mark.part("rest")
def test_thousand_columns(loads: Loads, write_parquet: Callable[..., Path]) -> None:
    """Each row is one line of a thousand fields."""
    columns = {f"c{n}": pa.array([n, None, -n], pa.int32()) for n in range(1_000)}
    loads.run(target(write_parquet(columns), create=True))
    assert loads.execute("SELECT c0, c500, c999 FROM t") == [(0, 500, 999), (None, None, None), (0, -500, -999)]


def test_only_needed_columns_are_read(write_parquet: Callable[..., Path], loads: Loads) -> None:
    """The others' bytes are not."""
    path = write_parquet(
        {"a": range(1_000), "b": [b"\xff" * 1_000 + bytes([n % 250]) for n in range(1_000)]},
        compression="none",
        use_dictionary=False,
    )
    loads.execute("CREATE TABLE t (a int)")
    with SourceReader() as reader:
        (source,) = reader.list([str(path)])
        file, opened = reader.open_columnar(source, "parquet")
        with file:
            assert len(read_rows(opened, opened.describe().fields[:1], is_binary=True)) == 1_000 * 14
        # The last 64 KiB are read for the footer.
        assert file.bytes_read < 100_000 < path.stat().st_size
    assert loads.run(target(path, skip=["b"])).rows == 1_000


# ---------------------------------------------------------------- damaged files


def _damaged(rng: random.Random, data: bytes) -> Sequence[bytes]:
    cuts = [data[: rng.randrange(4, len(data))] for _ in range(8)]
    flips = []
    for _ in range(40):
        flipped = bytearray(data)
        flipped[rng.randrange(8, len(data))] ^= 1 << rng.randrange(8)
        flips.append(bytes(flipped))
    return [*cuts, *flips]


@pytest.mark.part("rest")
@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_damaged_file_is_an_error_and_never_a_wrong_row(
    loads: Loads, write_parquet: Callable[..., Path], rng: random.Random, codec: str
) -> None:
    """Cut anywhere, or with any bit flipped: pages have checksums. A flip may hit what nobody reads."""
    data = write_parquet(_TABLE.slice(0, 500), compression=codec, row_group_size=200).read_bytes()
    loads.execute("CREATE TABLE t (id int, name text, share float8)")
    failed = 0
    for number, damaged in enumerate(_damaged(rng, data)):
        path = write_parquet(_TABLE.slice(0, 0), name=f"d{number}")
        path.write_bytes(damaged)
        try:
            loads.run(target(path), rules=AGAIN)
        except PenstockError as error:
            failed += 1
            assert isinstance(error, (SourceError, TargetError, DataError))
        rows = _rows(loads)
        assert rows in ([], _ROWS[:500])
        loads.execute("TRUNCATE t")
    assert failed > 24


def test_file_that_changes_while_it_is_read_is_an_error(write_parquet: Callable[..., Path]) -> None:
    """It is pinned as text is."""
    path = write_parquet(_TABLE, row_group_size=1_000)
    with SourceReader() as reader:
        (source,) = reader.list([str(path)])
        file, opened = reader.open_columnar(source, "parquet")
        with file, pytest.raises(SourceError, match="changed while it was read"):
            for _ in opened.read([SentColumn("id", "int", "int")], [(0, 3_000)], is_binary=False, rejects=False):
                path.touch()


# ---------------------------------------------------------------- what is refused


def test_option_for_text_is_refused(loads: Loads, write_parquet: Callable[..., Path]) -> None:
    """Whether the format is named or recognized."""
    path = write_parquet(_TABLE)
    for options in (
        {"delimiter": ","},
        {"has_header": True},
        {"encoding": "LATIN1"},
        {"skip_lines": 1},
        {"nulls": ("x",)},
    ):
        for named in ({}, {"format": "parquet"}):
            error = loads.refuse(target(path, create=True, **options, **named))
            assert isinstance(error, UsageError)
    error = loads.refuse(target(path, create=True, delimiter=","))
    assert error.message == "--delimiter cannot be used with format parquet"


def test_format_that_the_file_does_not_have_is_refused(
    loads: Loads, write_parquet: Callable[..., Path], tmp_path: Path
) -> None:
    """Text named as Parquet, Parquet named as text or Arrow, and Parquet in gzip."""
    text, path = tmp_path / "a.csv", write_parquet(_TABLE)
    text.write_text("a,b\n1,2\n")
    assert loads.refuse(target(text, create=True, format="parquet")).message == f'"{text}" is not a Parquet file'
    assert "is a Parquet file" in loads.refuse(target(path, create=True, format="csv")).message
    assert "is a Parquet file" in loads.refuse(target(path, create=True, format="arrow")).message
    packed = tmp_path / "a.parquet.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    error = loads.refuse(target(packed, create=True))
    assert error.hint is not None
    assert error.hint.startswith("Decompress it first")


def test_formats_of_one_load_must_be_the_same(loads: Loads, write_parquet: Callable[..., Path], tmp_path: Path) -> None:
    """Before the first row, whichever comes first."""
    text, path = tmp_path / "a.csv", write_parquet({"a": [1]})
    text.write_text("a\n1\n")
    loads.execute("CREATE TABLE t (a int)")
    for paths in ((text, path), (path, text)):
        assert isinstance(loads.refuse(target(paths)), DataError)


def test_unknown_and_repeated_columns_are_the_errors_of_a_header(
    loads: Loads, write_parquet: Callable[..., Path]
) -> None:
    """They name the file."""
    loads.execute("CREATE TABLE t (id int, share float8)")
    error = loads.refuse(target(write_parquet(_TABLE)))
    assert error.message == 'column "name" of the file does not exist in table "public.t"'
    repeated = pa.Table.from_arrays([pa.array([1]), pa.array([2])], ["id", "id"])
    path = write_parquet(repeated, name="r")
    for job in (target(path), target(path, into="new", create=True)):
        assert loads.refuse(job).message == 'two columns have the name "id"'


@pytest.mark.parametrize(
    ("data", "name"),
    [
        (b"\xff\xff\xff\xff\x70\x00\x00\x00", "an Arrow stream"),
        (b"PARE\x00\x01\x02\x03PARE", "an encrypted Parquet file"),
    ],
)
def test_what_looks_like_a_columnar_file_is_named(loads: Loads, tmp_path: Path, data: bytes, name: str) -> None:
    """It is not taken for text."""
    (tmp_path / "f").write_bytes(data)
    assert loads.refuse(target(tmp_path / "f", create=True)).message.endswith(f"is {name}, not delimited text")


def test_hints_name_no_option_for_text(loads: Loads, write_parquet: Callable[..., Path]) -> None:
    """Those are refused for columnar files."""
    loads.execute("CREATE TABLE t (id int NOT NULL, v int)")
    bad = pa.StringArray.from_buffers(2, pa.array([0, 1, 2], pa.int32()).buffers()[1], pa.py_buffer(b"1\xff"))
    columns: list[Any] = [{"v": [1, 2]}, {"v": ["1", "NA"]}, {"v": bad}, {"v": [1, 2], "w": [1, 2]}]
    for column in ({"id": [1, None if column is columns[0] else 2], **column} for column in columns):
        error = loads.refuse(target(write_parquet(column)))
        assert error.hint is not None
        assert "--null" not in error.hint
        assert "--types" not in error.hint
        assert "--encoding" not in error.hint
        assert "header" not in error.hint


def _peak_kib() -> int:
    return int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0])


@pytest.mark.parametrize("kind", ["text", rest("list"), rest("struct")])
def test_strings_of_a_dictionary_are_not_copied_for_each_row(write_parquet: Callable[..., Path], kind: str) -> None:
    """A file of some kilobytes may stand for gigabytes."""
    texts: list[Any] = ["y" * 400_000] * 500
    values = {"text": texts, "list": [[text] * 2 for text in texts[:250]], "struct": [{"a": text} for text in texts]}[
        kind
    ]
    path = write_parquet({"n": range(len(values)), "v": values}, compression="zstd")
    assert path.stat().st_size < 1_000_000
    # The peak of memory begins anew (proc(5)).
    Path("/proc/self/clear_refs").write_text("5")
    before = _peak_kib()
    with SourceReader() as sources:
        (source,) = sources.list((str(path),))
        file, opened = sources.open_columnar(source, "parquet")
        with file:
            sent = [SentColumn(field.name, field.sql_type, field.sql_type) for field in opened.describe().fields]
            found = opened.read(sent, [(0, opened.rows)], is_binary=False, rejects=False)
            assert sum(len(rows.data) for rows in found) > 200_000_000
    assert _peak_kib() - before < 40_000


def test_nothing_is_printed_by_a_reader_in_another_thread(loads: Loads, tmp_path: Path) -> None:
    """A file that is only a magic."""
    for name, data in (
        ("a.parquet", b"PAR1\x00\x00"),
        ("b.parquet", b"PAR1" + bytes(100) + b"PAR1"),
        ("c", b"ARROW1\0\0" + bytes(40)),
    ):
        path = tmp_path / name
        path.write_bytes(data)
        assert isinstance(loads.refuse(target(path, create=True)), SourceError)


def test_standard_input_needs_spool(write_parquet: Callable[..., Path], tmp_path: Path, loads: Loads) -> None:
    """A pipe has no ranges."""
    data, pipe = write_parquet(_TABLE).read_bytes(), tmp_path / "pipe"
    os.mkfifo(pipe)

    def write() -> None:
        try:
            pipe.write_bytes(data)
        except BrokenPipeError:
            return

    writer = threading.Thread(target=write)
    writer.start()
    error = loads.refuse(target(pipe, create=True))
    writer.join()
    assert error.hint is not None
    assert "--spool" in error.hint


def test_file_objects_of_python_may_be_columnar(loads: Loads, write_parquet: Callable[..., Path]) -> None:
    """They are copied to a file as others are."""
    stream = io.BytesIO(write_parquet(_TABLE).read_bytes())
    assert penstock.load(stream, "t", to=loads.conninfo, create=True, no_record=True).rows == 3_000
    assert _rows(loads) == _ROWS


def test_check_reports_rows(loads: Loads, write_parquet: Callable[..., Path]) -> None:
    """--check parses columnar files as well."""
    loads.execute("CREATE TABLE t (id smallint, name text, share float8)")
    table = _TABLE.set_column(0, "id", pa.array([2**15 if n == 1_500 else n % 100 for n in range(3_000)], pa.int32()))
    path = write_parquet(table, row_group_size=1_000)
    outcome = loads.check(target(path))
    assert [(problem.line, problem.column) for problem in outcome.problems] == [(1_501, "id")]
    assert loads.check(target(path), rules=LoadRules(retry_for=0.0)).rows == 3_000
