"""Values of every type in files of random layouts: what pyarrow reads, and what loads store by either format of COPY.

`python -m loading.formats.columnar.differential --values N` plays rounds until so many values were compared.
"""

from __future__ import annotations

import argparse
import io
import json
import random
import sys
import tempfile
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
from benchmarks.record import RECORDS, require_commit
from psycopg.types.json import Jsonb

from loading.formats.columnar.flips import open_bytes
from loading.formats.columnar.kinds import ARROW_ONLY, KINDS, TEXT_ONLY, make_array, make_values
from penstock.core.values.job import LoadRules
from penstock.loading.files.columnar.reader import SentColumn
from support.loads import AGAIN, Loads, target
from support.servers import installed, server_pool

# With rejects, rows are sent as text.
_AS_TEXT = LoadRules(on_error="reject", retry_for=0.0, again=True, vacuum=False)
_ROWS = 20_000

# The encodings of Parquet beside dictionaries, by the type that is stored.
_ENCODINGS = {
    "BOOLEAN": ("PLAIN", "RLE"),
    "INT32": ("PLAIN", "DELTA_BINARY_PACKED", "BYTE_STREAM_SPLIT"),
    "INT64": ("PLAIN", "DELTA_BINARY_PACKED", "BYTE_STREAM_SPLIT"),
    "FLOAT": ("PLAIN", "BYTE_STREAM_SPLIT"),
    "DOUBLE": ("PLAIN", "BYTE_STREAM_SPLIT"),
    "BYTE_ARRAY": ("PLAIN", "DELTA_LENGTH_BYTE_ARRAY", "DELTA_BYTE_ARRAY"),
    "FIXED_LEN_BYTE_ARRAY": ("PLAIN", "BYTE_STREAM_SPLIT", "DELTA_BYTE_ARRAY"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """What was compared in one file; `layout` is how it was written."""

    seed: int
    commit: str
    is_binary: bool
    rows: int
    # The kinds of values (kinds.py), one column each.
    kinds: list[str]
    layout: dict[str, Any]


class Differs(AssertionError):
    """A value that was stored is not the one that pyarrow reads."""


def play(loads: Loads, folder: Path, *, seed: int, rows: int, is_binary: bool, commit: str = "unknown") -> Round:
    """Write one file with every kind of values, load it in both formats of COPY, and compare. Raises Differs.

    Without `is_binary`, the kinds are those that have no binary format. They are loaded with rejects and without.
    """
    rng = random.Random(f"{seed} {is_binary}")
    file_format = rng.choice(["parquet", "parquet", "arrow"])
    layout: dict[str, Any] = {"format": file_format, "has_int96": file_format == "parquet" and rng.random() < 0.3}
    kinds = [name for name in KINDS if (name in TEXT_ONLY) != is_binary]
    if file_format == "parquet":
        kinds = [name for name in kinds if name not in ARROW_ONLY]
    layout["has_schema"] = not layout["has_int96"] and rng.random() < 0.8
    if file_format == "parquet" and not layout["has_schema"]:
        # Parquet by itself has numbers for these.
        kinds = [name for name in kinds if name != "bool8"]
    if layout["has_int96"]:
        # This type has no time zone.
        kinds = [name for name in kinds if not name.startswith("timestamptz")]
    columns = {name: make_array(make_values(name, rng, rows), name) for name in kinds}
    table, path = pa.table({"n": range(rows), **columns}), folder / f"{seed}.{file_format}"
    read = (
        _write_parquet(table, path, rng, layout) if file_format == "parquet" else _write_arrow(table, path, rng, layout)
    )
    _load(loads, path, read, kinds, is_binary=is_binary)
    for name in kinds:
        query = (
            "SELECT n, u.v::text, b.v::text, t.v::text FROM (SELECT n, {0} AS v FROM u) u"
            " FULL JOIN (SELECT n, {0} AS v FROM b) b USING (n) FULL JOIN (SELECT n, {0} AS v FROM t) t USING (n)"
            " WHERE (b.v::text, t.v::text) IS DISTINCT FROM (u.v::text, u.v::text) ORDER BY n LIMIT 3"
        ).format(f'"{name}"')
        if found := loads.execute(query):
            raise Differs(f"seed {seed}, {name}, {layout}: row, pyarrow, without rejects, as text: {found}")
    counts = loads.execute("SELECT (SELECT count(*) FROM b), (SELECT count(*) FROM t)")
    if counts != [(rows, rows)]:
        raise Differs(f"seed {seed}, {layout}: {counts} of {rows} rows")
    path.unlink()
    return Round(seed=seed, commit=commit, is_binary=is_binary, rows=rows, kinds=kinds, layout=layout)


def _write_parquet(table: pa.Table, path: Path, rng: random.Random, layout: dict[str, Any]) -> pa.Table:
    """Write a table in a random layout, and return it as pyarrow reads it."""
    empty = io.BytesIO()
    pq.write_table(table.slice(0, 0), empty)
    schema = pq.read_metadata(empty).schema
    stored = {leaf.path: leaf.physical_type for leaf in map(schema.column, range(len(schema.names)))}
    encodings = {}
    for leaf, physical in stored.items():
        # pyarrow reads no dictionary of values in another encoding.
        is_given = leaf.startswith("dictionary") or (layout["has_int96"] and leaf.startswith("timestamp"))
        chosen = None if is_given else rng.choice([None, *_ENCODINGS[physical]])
        if chosen is not None:
            encodings[leaf] = chosen
    layout["options"] = {
        "compression": rng.choice(["none", "snappy", "gzip", "zstd", "brotli", "lz4"]),
        "data_page_version": rng.choice(["1.0", "2.0"]),
        "data_page_size": rng.choice([500, 10_000, 1 << 20]),
        "row_group_size": rng.choice([999, len(table) // 3 + 1, len(table)]),
        "write_page_checksum": rng.random() < 0.5,
        "store_schema": layout["has_schema"],
        "use_deprecated_int96_timestamps": layout["has_int96"],
        "version": rng.choice(["1.0", "2.6"]),
    }
    layout["encodings"] = dict(Counter(encodings.values()))
    dictionaries = [leaf for leaf in stored if leaf not in encodings]
    pq.write_table(table, path, use_dictionary=dictionaries, column_encoding=encodings, **layout["options"])
    return pq.read_table(path, coerce_int96_timestamp_unit="us")


def _write_arrow(table: pa.Table, path: Path, rng: random.Random, layout: dict[str, Any]) -> pa.Table:
    layout["options"] = {"compression": rng.choice([None, "lz4", "zstd"])}
    layout["rows"] = rng.choice([999, len(table) // 3 + 1, len(table)])
    with pa.ipc.new_file(path, table.schema, options=pa.ipc.IpcWriteOptions(**layout["options"])) as writer:
        writer.write_table(table, layout["rows"])
    with pa.ipc.open_file(path) as reader:
        return reader.read_all()


def _load(loads: Loads, path: Path, read: pa.Table, kinds: list[str], *, is_binary: bool) -> None:
    """Load a file into b and as text into t, and write what pyarrow reads of it into u."""
    definitions = ", ".join(f'"{name}" {KINDS[name][2]}' for name in kinds)
    for table in ("b", "t", "u"):
        loads.execute(f"DROP TABLE IF EXISTS {table}; CREATE TABLE {table} (n bigint, {definitions})")
    opened = open_bytes(path.read_bytes(), path.suffix[1:])
    sent = [opened.fits_binary(SentColumn(name, KINDS[name][2], KINDS[name][2])) for name in kinds]
    assert all(sent) if is_binary else not any(sent), list(zip(kinds, sent, strict=True))
    loads.run(target(path, into="b"), rules=AGAIN)
    loads.run(target(path, into="t"), rules=_AS_TEXT)
    columns = [read["n"].to_pylist(), *(_read(read[name], KINDS[name][2]) for name in kinds)]
    with psycopg.connect(loads.conninfo) as connection, connection.cursor().copy("COPY u FROM STDIN") as copy:
        for row in zip(*columns, strict=True):
            copy.write_row(row)


def _read(column: pa.ChunkedArray, sql_type: str) -> list[Any]:
    """Return values as psycopg writes them."""
    kind = column.type
    if pa.types.is_timestamp(kind):
        # Python has no nanoseconds; pyarrow refuses those that would be lost.
        column = column.cast(pa.timestamp("us", kind.tz and "UTC"))
    elif pa.types.is_time64(kind):
        column = column.cast(pa.time64("us"))
    values = column.to_pylist()
    if sql_type != "jsonb":
        return values
    return [None if value is None else Jsonb(_to_json(value)) for value in values]


def _to_json(value: Any) -> Any:
    return json.loads(value) if isinstance(value, str) else dict(value)


def _summarize(rounds: list[Round]) -> str:
    """Return the record as text."""
    lines = [
        "# Values of columnar files",
        "",
        "Written by `python -m loading.formats.columnar.differential --record` (in `tests`) from",
        "[columnar_values.jsonl](columnar_values.jsonl), which has a line for each file.",
        "",
        f"{sum(map(_count, rounds)):,} values in {len(rounds)} files of random layouts. Each was stored as pyarrow",
        "reads it, by a load without rejects (in the binary format, but for decimals of more than 38",
        "digits and arrays), and by one with rejects, as text.",
        "",
        "| kind | values |",
        "|---|---|",
    ]
    counts = Counter[str]()
    for each in rounds:
        counts.update(dict.fromkeys(each.kinds, each.rows))
    lines += [f"| {name} | {counts[name]:,} |" for name in KINDS]
    return "\n".join(lines) + "\n"


def _count(one: Round) -> int:
    return one.rows * len(one.kinds)


def main() -> int:
    """Play rounds until so many values were compared; write the record, and return the process's exit status."""
    parser = argparse.ArgumentParser(prog="python -m loading.formats.columnar.differential", description=__doc__)
    parser.add_argument("--values", type=int, default=10_000_000)
    parser.add_argument("--seed", type=int, default=1, help="the first seed")
    parser.add_argument("--record", action="store_true", help="write the record; needs a clean working tree")
    options = parser.parse_args()
    commit = require_commit() if options.record else "unknown"
    rounds: list[Round] = []
    with server_pool() as pool, tempfile.TemporaryDirectory(prefix="penstock-values-") as folder:
        loads = Loads(pool.pg_server(max(installed())).fresh_database(has_ledger=True))
        while sum(map(_count, rounds)) < options.values:
            for is_binary in (True, False):
                seed = options.seed + len(rounds)
                rounds.append(play(loads, Path(folder), seed=seed, rows=_ROWS, is_binary=is_binary, commit=commit))
            print(f"{sum(map(_count, rounds)):,} values", flush=True)
    if options.record:
        lines = [json.dumps(asdict(each)) for each in rounds]
        (RECORDS / "columnar_values.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
        (RECORDS / "columnar_values.md").write_text(_summarize(rounds), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
