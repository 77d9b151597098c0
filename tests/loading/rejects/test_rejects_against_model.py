r"""Whatever bad records a file has, and however it is parted on its way: good ones are in, and bad ones rejected.

Each record is drawn with the fate that the model gives it. Of records with the same key one goes in, and which one is
left open; nothing else is. What is rejected has the bytes, the offset and the line of the file, and a load that stops
at a limit on the way and goes on ends the same.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import pytest
from hypothesis import HealthCheck, Phase, event, given, settings
from hypothesis import strategies as st

from penstock.core.errors import DataError
from penstock.core.values.job import LoadRules
from support.loads import Loads, target

if TYPE_CHECKING:
    from pathlib import Path

    from hypothesis.strategies import DrawFn

Format = Literal["csv", "text", "tsv"]

EXAMPLES = settings(
    phases=[Phase.explicit, Phase.generate],
    max_examples=max(10, settings().max_examples // 4),
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)

Table = Literal["plain", "partitioned", "strict"]

COMMON = """
    DROP TABLE IF EXISTS t;
    DROP DOMAIN IF EXISTS soft;
    CREATE DOMAIN soft AS text CHECK (VALUE <> 'hard');
    CREATE OR REPLACE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        IF NEW.s = 'raise' THEN RAISE EXCEPTION 'not this one' USING ERRCODE = 'P0042'; END IF;
        RETURN NEW;
    END $$;
"""
COLUMNS = """
    k int {key},
    d date,
    s varchar(6) NOT NULL CHECK (s <> 'no'),
    p int REFERENCES parent,
    u int {unique},
    e soft,
    f text DEFAULT 'f'
"""
DEFERRED = "UNIQUE DEFERRABLE INITIALLY DEFERRED"
TABLES: dict[Table, str] = {
    "plain": f"CREATE TABLE t ({COLUMNS.format(key='PRIMARY KEY', unique=DEFERRED)})",
    "partitioned": f"CREATE TABLE t ({COLUMNS.format(key='PRIMARY KEY', unique='')}) PARTITION BY RANGE (k);"
    " CREATE TABLE IF NOT EXISTS t1 PARTITION OF t FOR VALUES FROM (0) TO (40);"
    " CREATE TABLE IF NOT EXISTS t2 PARTITION OF t FOR VALUES FROM (40) TO (100000)",
    "strict": f"CREATE TABLE t ({COLUMNS.format(key='', unique='UNIQUE')},"
    " g int GENERATED ALWAYS AS (10 / (octet_length(s) - 4)) STORED, EXCLUDE USING btree (k WITH =))",
}
TRIGGERS = {
    "before": "CREATE TRIGGER refuse BEFORE INSERT ON t FOR EACH ROW EXECUTE FUNCTION refuse()",
    "after": "CREATE TRIGGER refuse AFTER INSERT ON t FOR EACH ROW EXECUTE FUNCTION refuse()",
    "at the end": "CREATE CONSTRAINT TRIGGER refuse AFTER INSERT ON t DEFERRABLE INITIALLY DEFERRED"
    " FOR EACH ROW EXECUTE FUNCTION refuse()",
}

# Kinds of bad records: what is put in place of a field, by its index, and the code it is refused with.
BAD: dict[str, tuple[int, bytes, str]] = {
    "type": (0, b"seven", "22P02"),
    "range": (0, b"70000000000", "22003"),
    "date": (1, b"2020-02-31", "22008"),
    "long": (2, b"too long a text", "22001"),
    "check": (2, b"no", "23514"),
    "reference": (3, b"99", "23503"),
    "raised": (2, b"raise", "P0042"),
    "domain": (5, b"hard", "23514"),
    "encoding": (2, b"\xe9", "22021"),
    "nul": (2, b"\x00", "22021"),
}
# Those of a table with a column that is computed from another, besides.
STRICT = {"division": (2, b"four", "22012")}
# Those that are made otherwise.
OTHER = {"null": "23502", "few": "22P04", "many": "22P04"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """A record's bytes with its line end, its key, and the code it is refused with; None for a good one."""

    raw: bytes
    key: int
    code: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class File:
    """A file and how it is parted on its way."""

    format: Format
    has_header: bool
    records: list[Record]
    piece_bytes: int
    chunk_bytes: int
    batch_bytes: int
    sessions: int
    constants: dict[str, str]
    max_rejects: int | None
    table: Table
    trigger: str
    sorts_at_most: int

    @property
    def header(self) -> bytes:
        """Return the header with its line end."""
        return b"\t".join((b"k", b"d", b"s", b"p", b"u", b"e")) + b"\n" if self.has_header else b""

    @property
    def fits_nowhere(self) -> bool:
        """Return whether there are two records or more, and none has the right number of fields."""
        return len(self.records) > 1 and all(record.code == OTHER["few"] for record in self.records)

    @property
    def data(self) -> bytes:
        """Return all of the file."""
        return self.header + b"".join(record.raw for record in self.records)


@st.composite
def _records(draw: DrawFn, file_format: Format, table: Table) -> list[Record]:
    null = b"" if file_format == "csv" else b"\\N"
    good = [b"a", b"xyz", "é".encode(), b"\\\\" if file_format == "text" else b"\\"]
    if file_format == "csv":
        good += [b'"a\nb"', b'"\t"', b'""""', b'"\n\n"']
    share = draw(st.sampled_from((1, 2, 10, 50, 100)))
    bad = BAD | STRICT if table == "strict" else BAD
    kinds = st.sampled_from([*bad, *OTHER])
    records = []
    for number in range(draw(st.integers(0, 120))):
        kind = draw(kinds) if draw(st.integers(0, share)) == 0 else None
        is_twin = kind is None and number > 0 and draw(st.integers(0, 2 * share)) == 0
        key = draw(st.integers(0, number - 1)) if is_twin else number
        fields = [b"%d" % key, draw(st.sampled_from((b"2020-01-31", null))), draw(st.sampled_from(good))]
        fields += [draw(st.sampled_from((b"1", null))), b"%d" % number, draw(st.sampled_from((b"mild", null)))]
        if kind in bad:
            place, value, code = bad[kind]
            fields[place] = value
        elif kind is not None:
            # On one line: one on several would be rejected line by line.
            many = [*fields[:2], b"a", *fields[3:], b"x"]
            fields = {"null": [*fields[:2], null, *fields[3:]], "few": fields[:2], "many": many}[kind]
            code = OTHER[kind]
        records.append(Record(raw=b"\t".join(fields) + b"\n", key=key, code=None if kind is None else code))
    if records and draw(st.booleans()):
        records[-1] = Record(raw=records[-1].raw[:-1], key=records[-1].key, code=records[-1].code)
    return records


@st.composite
def _files(draw: DrawFn) -> File:
    file_format = draw(st.sampled_from(("csv", "text", "tsv")))
    table = draw(st.sampled_from(tuple(TABLES)))
    return File(
        format=file_format,
        has_header=draw(st.booleans()),
        records=draw(_records(file_format, table)),
        piece_bytes=draw(st.sampled_from((7, 100, 1000, 1_000_000))),
        chunk_bytes=draw(st.sampled_from((1, 100, 1000, 1_000_000))),
        batch_bytes=draw(st.sampled_from((1, 300, 1_000_000))),
        sessions=draw(st.integers(1, 3)),
        constants=draw(st.sampled_from(({}, {"f": "x"}))),
        max_rejects=draw(st.sampled_from((None, None, 3))),
        table=table,
        trigger=draw(st.sampled_from(tuple(TRIGGERS))),
        sorts_at_most=draw(st.sampled_from((20, 100_000))),
    )


def _run(loads: Loads, file: File, path: Path, *, max_rejects: int | None) -> None:
    loads.piece_bytes = file.piece_bytes
    job = target(
        path,
        format=file.format,
        delimiter="\t",
        has_header=file.has_header,
        columns=("k", "d", "s", "p", "u", "e"),
        constants=file.constants,
        encoding="UTF8",
    )
    rules = LoadRules(retry_for=0.0, on_error="reject", max_rejects=max_rejects)
    loads.run(job, sessions=file.sessions, rules=rules, batch_bytes=file.batch_bytes)


def _load(loads: Loads, file: File, path: Path) -> None:
    try:
        _run(loads, file, path, max_rejects=file.max_rejects)
    except DataError as error:
        assert "rejected" in error.message, error
        event("went on behind a limit")
        _run(loads, file, path, max_rejects=None)


def _expect(file: File) -> list[tuple[int, int, bytes, int, str | None]]:
    """Return start, line, bytes, key and code of each record."""
    start, line = len(file.header), 1 + file.header.count(b"\n")
    found = []
    for record in file.records:
        found.append((start, line, record.raw, record.key, record.code))
        start, line = start + len(record.raw), line + record.raw.count(b"\n")
    return found


@EXAMPLES
@given(file=_files())
def test_good_records_are_in_and_bad_ones_rejected(database: str, tmp_path: Path, file: File) -> None:
    """On each version."""
    loads = Loads(database, chunk_bytes=file.chunk_bytes, most_sorted=file.sorts_at_most)
    loads.execute("CREATE TABLE IF NOT EXISTS parent (id int PRIMARY KEY); DELETE FROM parent WHERE false")
    loads.execute(f"{COMMON} {TABLES[file.table]}; {TRIGGERS[file.trigger]}")
    loads.execute("INSERT INTO parent VALUES (1) ON CONFLICT DO NOTHING")
    loads.execute("DROP SCHEMA IF EXISTS penstock CASCADE")
    path = tmp_path / "file"
    path.write_bytes(file.data)
    if file.fits_nowhere:
        with pytest.raises(DataError):
            _run(loads, file, path, max_rejects=None)
        assert (loads.count(), loads.count("penstock.rejects")) == (0, 0)
        return
    _load(loads, file, path)
    stored = {row[0] for row in loads.execute("SELECT u FROM t")}
    rejected = {
        start: (line, raw, code)
        for start, line, raw, code in loads.execute("SELECT start, line, raw, sqlstate FROM penstock.rejects")
    }
    expected = _expect(file)
    taken = "23P01" if file.table == "strict" else "23505"
    twins = Counter(key for *_, key, code in expected if code is None)
    for number, (start, line, raw, key, code) in enumerate(expected):
        if code is not None:
            # Of what is found only when the row is there, its key may be taken by then.
            codes = {code, taken} if code in ("23503", "P0042") and twins[key] else {code}
            assert rejected.pop(start) in [(line, raw, each) for each in codes]
            assert number not in stored
        elif number in stored:
            assert start not in rejected
        else:
            assert twins[key] > 1
            assert rejected.pop(start) == (line, raw, taken)
    assert not rejected
    # Of records with the same key just one is in.
    assert len(stored) == len(twins)
    sums = loads.execute("SELECT sum(records), sum(rows), sum(rejected) FROM penstock.ranges")
    assert sums == [(len(expected), len(stored), len(expected) - len(stored))]
