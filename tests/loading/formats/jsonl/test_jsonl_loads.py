"""Loads of JSON Lines: which columns get values, created and changed tables, refusals, rejects, kills."""

from __future__ import annotations

import gzip
import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from psycopg.conninfo import make_conninfo

import penstock
from penstock.core.errors import DataError, TargetError, UsageError
from penstock.core.values.job import LoadRules
from support.loads import Loads, target
from support.modes import Killed, mode_target
from support.typed import make_target, types_of

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Sequence
    from pathlib import Path

Write = Any

_REJECTING = LoadRules(retry_for=0.0, on_error="reject", vacuum=False)


def _lines(*records: Any) -> str:
    return "".join(f"{record if isinstance(record, str) else json.dumps(record)}\n" for record in records)


# ---------------------------------------------------------------- columns


def test_names_find_their_columns(loads: Loads, write: Write) -> None:
    """Exactly, or else but for case; columns that a record does not name are null, also those named late."""
    loads.execute("CREATE TABLE t (id int, \"Name\" text, name text, late text, made date DEFAULT '2000-01-01')")
    padding = [{"id": number, "NAME": "x" * 100} for number in range(3, 4000)]
    path = write(_lines({"ID": 1, "Name": "N", "name": "n"}, {"id": 2}, *padding[:9], {"Late": 5, "id": 4000}))
    loads.run(target(path, skip=["NAME"]))
    assert loads.execute('SELECT "Name", name FROM t WHERE id = 1') == [("N", "n")]
    loads.execute('ALTER TABLE t DROP COLUMN "Name"; TRUNCATE t')
    path = write(_lines({"ID": 1, "NAME": "n"}, {"id": 2}, *padding, {"Late": 5, "id": 4000}), "2.jsonl")
    assert loads.run(target(path)).rows == 4000
    rows = loads.execute("SELECT * FROM t WHERE id IN (1, 2, 4000) ORDER BY id")
    assert [tuple(map(str, row)) for row in rows] == [
        ("1", "n", "None", "2000-01-01"),
        ("2", "None", "None", "2000-01-01"),
        ("4000", "None", "5", "2000-01-01"),
    ]


def test_column_with_a_default_is_loaded_if_it_is_named_early_or_by_an_option(loads: Loads, write: Write) -> None:
    """A record that names it later is an error that names the option; then a record without it is null."""
    loads.execute("CREATE TABLE t (id int, made text DEFAULT 'd')")
    records = [{"id": number, "x": None} for number in range(30_000)]
    text = _lines(*records, {"id": -1, "made": "m"})
    path = write(text)
    error = loads.refuse(target(path, skip=["x"]))
    assert (error.message, str(error.location)) == (
        'name "made" belongs to no column that is loaded',
        f"{path} line 30001",
    )
    assert "--columns" in (error.hint or "")
    loads.run(target(path, skip=["x"], columns=["id", "made", "x"]))
    assert loads.execute("SELECT id, made FROM t WHERE id < 1 ORDER BY id") == [(-1, "m"), (0, None)]


def test_whole_records_go_to_the_only_json_column(loads: Loads, write: Write) -> None:
    """Columns with defaults and of --set get their own; options that name columns load by name."""
    loads.execute(
        "CREATE TABLE t (id int GENERATED ALWAYS AS IDENTITY, doc json NOT NULL, file text, at date DEFAULT now())"
    )
    text = '{"b": 1.50,  "a": "\\u00e9"}'
    loads.run(target(write(_lines(text)), constants={"file": "{filename}"}))
    assert loads.execute("SELECT id, doc::text, file, at = current_date FROM t") == [(1, text, "f.jsonl", True)]
    loads.execute("CREATE TABLE u (doc jsonb)")
    path = write(_lines({"doc": {"a": 1}}), "2.jsonl")
    loads.run(target(path, into="u"))
    assert "stored whole" in loads.warnings[0].message
    loads.run(target(path, into="u", columns=["doc"]), rules=LoadRules(retry_for=0.0, again=True))
    assert loads.execute("SELECT doc FROM u") == [({"doc": {"a": 1}},), ({"a": 1},)]


def test_a_name_cannot_be_skipped_in_whole_records(loads: Loads, write: Write) -> None:
    """Its value would be stored with them."""
    loads.execute("CREATE TABLE t (id int, doc jsonb)")
    path = write(_lines({"id": 1, "secret": "x"}))
    for names in (["SECRET", "id"], ["id"]):
        assert f'cannot skip "{names[0]}"' in loads.refuse(target(path, skip=names)).message
    assert loads.count() == 0
    loads.run(target(path, columns=["id", "doc", "secret"], skip=["secret"]))
    assert loads.rows() == [(1, None)]


def test_skipped_and_constant_values(loads: Loads, write: Write) -> None:
    """A skipped name may be in some records, or of a column of the table."""
    loads.execute("CREATE TABLE t (a int, b text DEFAULT 'd', c text, d text DEFAULT 'e')")
    path = write(_lines({"a": 1, "b": "x", "zz": {"k": []}}, {"a": 2}))
    loads.run(target(path, skip=["b", "zz", "d"], constants={"c": "{null}"}))
    assert loads.rows() == [(1, "d", None, "e"), (2, "d", None, "e")]


def test_upsert_leaves_columns_that_no_record_names(loads: Loads, write: Write) -> None:
    """A record that names another column is an error, as others would lose that column's value."""
    loads.execute("CREATE TABLE t (id int PRIMARY KEY, a text, b text); INSERT INTO t VALUES (1, 'x', 'y')")
    loads.run(mode_target(write(_lines({"id": 1, "a": "n"}, {"id": 2})), mode="upsert", key=["id"]))
    assert loads.rows() == [(1, "n", "y"), (2, None, None)]
    late = write(_lines(*({"id": number, "a": "x" * 300} for number in range(2000)), {"id": -1, "b": "z"}), "2.jsonl")
    with pytest.raises(DataError, match='name "b" belongs to no column that is loaded'):
        loads.run(mode_target(late, mode="upsert", key=["id"]))
    assert loads.count() == 2


def test_records_are_replaced_and_transformed(loads: Loads, write: Write) -> None:
    """JSON Lines goes through every landing."""
    loads.execute("CREATE TABLE t (id int, j jsonb, x text); INSERT INTO t VALUES (9)")
    path = write(_lines({"id": 1, "j": "s"}, {"id": 2, "j": [1], "x": "v"}))
    loads.run(mode_target(path, mode="replace"))
    assert loads.rows() == [(1, "s", None), (2, [1], "v")]
    path = write(_lines({"id": 1, "j": None}, {"id": 2, "j": [1], "x": "v"}), "2.jsonl")
    statement = {"name": "x.sql", "text": "INSERT INTO t SELECT 10 * id::int, j::jsonb FROM :staging"}
    loads.run(
        make_target(path, create=False, types="text", transform=statement), rules=LoadRules(retry_for=0, again=True)
    )
    assert loads.execute("SELECT id, j FROM t WHERE id > 9 AND j IS NOT NULL") == [(20, [1])]


# ---------------------------------------------------------------- created and changed tables


def test_created_columns_are_those_of_the_first_records(loads: Loads, write: Write) -> None:
    """Of type text, with nested values as JSON; names are folded."""
    loads.run(target(write(_lines({"Id": 1, "b c": True}, {"tags": ["a\n", None], "Id": "x"})), create=True))
    assert types_of(loads) == ["text"] * 3
    assert loads.execute('SELECT id, "b c", tags FROM t') == [("1", "true", None), ("x", None, '["a\\n", null]')]


def test_types_are_found_in_all_values_of_all_names(loads: Loads, tmp_path: Path, write: Write) -> None:
    """Names that no sample shows become columns too; the plan says which value decided."""
    first = write(
        _lines(*({"n": number, "at": "2024-01-01T00:00:00Z"} for number in range(20_000)), {"late": {"k": 1}})
    )
    second = tmp_path / "g.jsonl.gz"
    second.write_bytes(
        gzip.compress(_lines({"N": 3_000_000_000, "only": None, "f": 1.5, "s": "x", "ok": False}).encode())
    )
    job = make_target(first, second)
    with loads.loader() as loader:
        from penstock.core.values.job import LoadJob

        (planned,) = loader.plan(LoadJob(targets=(job,))).targets
    typed = {column.name: column for column in planned.typed}
    assert str(typed["n"].decided_by) == f'{second} line 1: "3000000000"'
    assert str(typed["late"].decided_by) == f'{first} line 20001: "{{\\"k\\": 1}}"'.replace("\\", "")
    assert loads.run(job).rows == 20_002
    found = dict(zip((row[0] for row in loads.execute(_COLUMNS)), types_of(loads), strict=True))
    assert found == {
        "n": "bigint",
        "at": "timestamp with time zone",
        "late": "jsonb",
        "only": "text",
        "f": "numeric",
        "s": "text",
        "ok": "boolean",
    }
    assert loads.execute("SELECT late FROM t WHERE late IS NOT NULL") == [({"k": 1},)]


_COLUMNS = "SELECT attname::text FROM pg_attribute WHERE attrelid = 't'::regclass AND attnum > 0 ORDER BY attnum"


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (["1", '"2"'], "integer"),
        (["[1]", "{}", "null"], "jsonb"),
        (["[1]", "1"], "text"),
        (['"[1]"', '"{}"'], "text"),
        (['"true"', "false"], "boolean"),
        (["1", "true"], "text"),
        (["1.50", "1"], "numeric"),
        (["1e5", "0.5"], "double precision"),
        (['""', "1"], "text"),
        (["null", "null"], "text"),
        (['"007"'], "text"),
    ],
)
def test_one_value_decides(loads: Loads, write: Write, values: list[str], expected: str) -> None:
    """A string counts as its text; jsonb is for objects and arrays only."""
    loads.run(make_target(write("".join(f'{{"id":1,"v":{value}}}\n' for value in values))))
    assert types_of(loads) == ["integer", expected]


def test_columns_are_added_and_widened(loads: Loads, write: Write) -> None:
    """With --types widen and --add-columns, before the first row, from every record."""
    loads.execute("CREATE TABLE t (a int)")
    padding = [{"a": 1}] * 40_000
    path = write(_lines(*padding, {"a": 3_000_000_000, "New": [1]}))
    assert isinstance(loads.refuse(target(path)), DataError)
    loads.run(make_target(path, create=False, types="widen", add_columns=True))
    assert types_of(loads) == ["bigint", "jsonb"]
    assert loads.execute("SELECT * FROM t WHERE new IS NOT NULL") == [(3_000_000_000, [1])]


def test_columns_of_a_sample_are_added(loads: Loads, write: Write) -> None:
    """Without --types, the first records of each file say what is added."""
    loads.execute("CREATE TABLE t (a int)")
    write(_lines({"a": 1, "b": 1}), "1.jsonl")
    paths = [write(_lines({"a": 2, "c": "x"}), "2.jsonl"), write(_lines({"a": 1, "b": 1}), "1.jsonl")]
    loads.run(make_target(*paths, create=False, types="text", add_columns=True))
    assert sorted(loads.execute("SELECT a, b, c FROM t")) == [(1, "1", None), (2, None, "x")]


def test_columns_are_added_for_an_upsert(loads: Loads, write: Write) -> None:
    """Those of all files get values, whichever is first."""
    loads.execute("CREATE TABLE t (id int PRIMARY KEY, a text)")
    options: dict[str, Any] = {"create": False, "add_columns": True, "mode": "upsert", "key": ("id",)}
    paths = [write(_lines({"id": 1, "b": 1}), "1.jsonl"), write(_lines({"id": 2, "c": 2}), "2.jsonl")]
    loads.run(make_target(*paths, types="text", **options))
    assert loads.execute("SELECT id, a, b, c FROM t ORDER BY id") == [(1, None, "1", None), (2, None, None, "2")]
    late = [{"id": number, "b": "x" * 300} for number in range(3, 2000)]
    loads.run(make_target(write(_lines(*late, {"id": 2000, "d": [1]}), "3.jsonl"), types="widen", **options))
    assert loads.execute("SELECT id, d FROM t WHERE d IS NOT NULL") == [(2000, [1])]


def test_a_resumed_load_of_a_created_table_reads_records_by_name(loads: Loads, write: Write) -> None:
    """Although the table has one column of type jsonb by then."""
    path = write(_lines(*({"v": [number, "x" * 300]} for number in range(1000)), {"v": 1, "w": 2}))
    for _ in range(2):
        with pytest.raises(DataError, match='name "w" belongs to no column'):
            loads.run(target(path, into="public.t", create=True), sessions=1, batch_bytes=20_000)
        loads.execute("ALTER TABLE t ALTER v TYPE jsonb USING v::jsonb")
    assert loads.count() > 0
    assert loads.count() == loads.execute("SELECT count(*) FROM t WHERE jsonb_typeof(v) = 'array'")[0][0]


# ---------------------------------------------------------------- refusals

_REFUSED = {
    "not json": "invalid JSON: a value is expected at byte 1 of the record",
    '{"a":1': "invalid JSON: a comma or the end of the object is expected at byte 7 of the record",
    '{"a":"x': 'invalid JSON: the end of a string is expected at byte 8 of the record, in the value of "a"',
    '{"a":"\tx"}': 'invalid JSON: a control character in a string at byte 7 of the record, in the value of "a"',
    '{"a":"\\x"}': 'invalid JSON: unknown escape at byte 7 of the record, in the value of "a"',
    '{"a":NaN}': 'invalid JSON: a value is expected at byte 6 of the record, in the value of "a"',
    '{"a":1} {}': "invalid JSON: the end of the record is expected at byte 9 of the record",
    '{"a":1,"a":2}': 'name "a" appears twice',
    '{"A":1,"a":2}': 'name "a" appears twice',
    '{"j":[{"k":1,"k":2}]}': 'name "k" appears twice, in the value of "j"',
    '{"zz":1}': 'name "zz" belongs to no column that is loaded',
    '{"a":"\\ud83d"}': 'half of a surrogate pair at byte 7 of the record, in the value of "a"',
    '{"j":["\\udc00"]}': 'half of a surrogate pair at byte 8 of the record, in the value of "j"',
    '{"a":"\\u0000"}': '\\u0000, which PostgreSQL cannot store, at byte 7 of the record, in the value of "a"',
    '{"j":' + "[" * 1001 + "]" * 1001 + "}": 'objects and arrays are nested more than 1000 deep, in the value of "j"',
    "[1]": "the record is not a JSON object",
    "7": "the record is not a JSON object",
}


@pytest.mark.parametrize("record", _REFUSED)
def test_bad_record_is_an_error_with_its_line(loads: Loads, write: Write, record: str) -> None:
    """Behind blank lines, where no sample shows it; and nothing is loaded."""
    loads.execute("CREATE TABLE t (a text, j jsonb)")
    good = f'{{"a":"{"x" * 60}"}}\n'
    path = write(good * 4_000 + f"\n \r\n{record}\n{good}")
    error = loads.refuse(target(path))
    assert (error.message, str(error.location)) == (_REFUSED[record], f"{path} line 4003")


@pytest.mark.part("rest")
def test_bad_records_are_rejected_with_bytes_and_line_and_taken_back_edited(
    loads: Loads, write: Write, tmp_path: Path
) -> None:
    """Each kind, beside good records; a corrected file stores them."""
    loads.execute("CREATE TABLE t (a text, j jsonb, n numeric(4,1))")
    refused = [*_REFUSED, '{"n":12345}', '{"n":"x"}']
    path = write("".join(f'{{"a":"good"}}\r\n{record}\r\n' for record in refused))
    outcome = loads.run(target(path), rules=_REJECTING)
    assert (outcome.rows, outcome.rejected) == (len(refused), len(refused))
    rejects = loads.execute('SELECT line, raw, message, "column" FROM penstock.rejects ORDER BY start')
    assert [(line, raw.decode()) for line, raw, _, _ in rejects] == [
        (2 * number, f"{record}\r\n") for number, record in enumerate(refused, 1)
    ]
    assert [message for _, _, message, _ in rejects][: len(_REFUSED)] == list(_REFUSED.values())
    assert [column for *_, column in rejects][-2:] == ["n", "n"]
    written = tmp_path / "r.jsonl"
    run = [sys.executable, "-m", "penstock"]
    to = ["--to", loads.conninfo]
    subprocess.run([*run, "rejects", "latest", "--reject-file", str(written), *to], check=True, capture_output=True)
    assert written.read_bytes() == "".join(f"{record}\r\n" for record in refused).encode()
    edited = [f'{{"a":"{number}"}}' if number % 2 else record for number, record in enumerate(refused)]
    written.write_text("".join(f"{record}\r\n" for record in edited), newline="")
    retried = subprocess.run([*run, "retry", "latest", str(written), *to], check=False, capture_output=True, text=True)
    assert retried.returncode == 3, retried.stderr
    assert loads.execute("SELECT a FROM t WHERE a <> 'good' ORDER BY a::int") == [
        (str(number),) for number in range(1, len(refused), 2)
    ]
    left = loads.execute("SELECT raw FROM penstock.rejects ORDER BY start")
    assert [raw.decode().strip() for (raw,) in left] == refused[::2]


def test_server_names_line_and_column_of_a_number_beyond_its_column(loads: Loads, write: Write) -> None:
    """Its own error, with the line in the file although blank lines stand before it."""
    loads.execute("CREATE TABLE t (a int, n numeric(4,1))")
    path = write('{"a":1}\n\n\n{"a":1,\t"n":12345.678}\n')
    error = loads.refuse(target(path))
    assert error.sqlstate == "22003"
    assert str(error.location).startswith(f"{path} line 4")
    assert error.location is not None
    assert error.location.column == "n"


def test_file_without_a_good_record_is_refused_although_records_may_be_rejected(loads: Loads, write: Write) -> None:
    """It is of another kind than was said."""
    loads.execute("CREATE TABLE t (a int)")
    with pytest.raises(DataError, match="no record can be loaded"):
        loads.run(target(write("a,b\n1,2\n3,4\n"), format="jsonl"), rules=_REJECTING)
    with pytest.raises(DataError, match="no record can be loaded"):
        loads.run(target(write('{"b":1}\n' * 2000)), rules=_REJECTING)
    assert loads.count() == 0


def test_what_does_not_fit_is_refused_before_the_first_row(loads: Loads, write: Write) -> None:
    """Unknown names in the first records, files of other formats, a table without a name, mixed targets."""
    loads.execute("CREATE TABLE t (a int, g int GENERATED ALWAYS AS (a) STORED)")
    path = write(_lines({"a": 1}, {"b": 1}))
    assert isinstance(loads.refuse(target(path)), TargetError)
    assert isinstance(loads.refuse(target(write(_lines({"a": 1, "g": 1})))), TargetError)
    path, other = write(_lines({"a": 1})), write("a\n1\n", "f.csv")
    for paths in ([path, other], [other, path]):
        assert "different formats" in loads.refuse(target(paths)).message
    with pytest.raises(DataError, match="no record names a column"):
        loads.run(target(write("{}\n", "2.jsonl"), into="u", create=True, format="jsonl"))
    with pytest.raises(UsageError, match="JSON Lines and other files"):
        loads.run(make_target(path, into="v"), make_target(other, into="v"))


def test_names_that_are_data_are_refused_by_number(loads: Loads, write: Write) -> None:
    """In the first records, and beyond them; whole records may have any."""
    many = {f"key {number}": number for number in range(1601)}
    message = "more than 1600 names"
    for job in (
        target(write(_lines(many)), create=True),
        make_target(write(_lines(*[{"a": "x" * 1000}] * 400, many), "2.jsonl")),
        make_target(write(_lines(*[{"a": "x" * 1000}] * 400, *({f"k{n}": n} for n in range(5000))), "3.jsonl")),
    ):
        assert message in loads.refuse(job).message
    loads.execute("CREATE TABLE u (id int, name text)")
    assert message in loads.refuse(target(write(_lines(many)), into="u")).message
    loads.execute("CREATE TABLE v (id int DEFAULT 1)")
    assert "no record names a column" in loads.refuse(target(write("{}\n"), into="v", format="jsonl")).message
    loads.execute("CREATE TABLE w (doc jsonb)")
    loads.run(target(write(_lines(many)), into="w"))
    assert loads.execute("SELECT doc ->> 'key 1600' FROM w") == [("1600",)]


def test_bytes_that_are_not_utf8(loads: Loads, tmp_path: Path) -> None:
    """An error with the line, in the first records and beyond them, or a reject."""
    loads.execute("CREATE TABLE t (a text)")
    for before in (1, 60_000):
        path = tmp_path / f"{before}.jsonl"
        path.write_bytes(b'{"a":1}\n' * before + b'{"a":"\xe9"}\n')
        error = loads.refuse(target(path))
        assert error.location is not None
        assert error.location.line == before + 1
        outcome = loads.run(target(path), rules=_REJECTING)
        assert (outcome.rows, outcome.rejected) == (before, 1)
        loads.execute("TRUNCATE t")


@pytest.mark.part("rest")
def test_rejected_records_of_an_upsert_are_merged_later(loads: Loads, write: Write, tmp_path: Path) -> None:
    """By a load of their own, which reads them as JSON Lines."""
    loads.execute("CREATE TABLE t (id int PRIMARY KEY, a varchar(3))")
    path = write(_lines({"id": 1, "a": "x"}, {"id": 2, "a": "long"}, '{"id":3,"a":'))
    outcome = loads.run(mode_target(path, mode="upsert", key=["id"]), rules=_REJECTING)
    assert (outcome.rows, outcome.rejected) == (1, 2)
    written = tmp_path / "r.jsonl"
    run, to = [sys.executable, "-m", "penstock"], ["--to", loads.conninfo]
    subprocess.run([*run, "rejects", "latest", "--reject-file", str(written), *to], check=True, capture_output=True)
    written.write_text(written.read_text().replace("long", "l").replace('"a":\n', '"a":"y"}\n'))
    retried = subprocess.run([*run, "retry", "latest", str(written), *to], check=False, capture_output=True, text=True)
    assert retried.returncode == 0, retried.stderr
    assert loads.rows() == [(1, "x"), (2, "l"), (3, "y")]


# ---------------------------------------------------------------- forms of files


def test_forms_of_files(loads: Loads, tmp_path: Path) -> None:
    """A byte-order mark, UTF16, compression, blank lines around, no line end at the end, no record at all."""
    loads.execute("CREATE TABLE t (a text)")
    text = '\n{"a":"é"}\n\n  \n{"a":"€"}'
    bodies = [
        b"\xef\xbb\xbf" + text.encode(),
        text.encode("utf-16"),
        gzip.compress(f"{text}\n\n \n".encode()),
        b"\n\n",
        b"",
    ]
    for number, body in enumerate(bodies):
        (tmp_path / f"{number}.jsonl").write_bytes(body)
    for piece_bytes in (1, 1000):
        chopped = Loads(loads.conninfo, piece_bytes=piece_bytes)
        job = target(tmp_path, format="jsonl")
        assert chopped.run(job, rules=LoadRules(retry_for=0, again=True)).rows == 6
    assert loads.execute("SELECT a, count(*) FROM t GROUP BY 1 ORDER BY 1") == [("é", 6), ("€", 6)]
    (tmp_path / "2.jsonl").touch()
    assert loads.run(target(tmp_path, format="jsonl")).rows == 0


def test_json_in_a_database_of_another_encoding(loads: Loads, write: Write) -> None:
    """The server converts what is sent as UTF8."""
    loads.execute("CREATE DATABASE jsonl_latin TEMPLATE template0 ENCODING 'LATIN1' LOCALE 'C'")
    loads.execute("CREATE DATABASE jsonl_ascii TEMPLATE template0 ENCODING 'SQL_ASCII' LOCALE 'C'")
    path = write('{"a":"\\u00e9"}\n{"a":"é"}\n')
    for name in ("jsonl_latin", "jsonl_ascii"):
        there = Loads(make_conninfo(loads.conninfo, dbname=name), setup="CREATE TABLE t (a text)")
        there.run(target(path))
        assert there.execute("SELECT count(DISTINCT a), max(octet_length(a)) FROM t") == [
            (1, 1 if name == "jsonl_latin" else 2)
        ]


def test_check_reports_each_bad_record(loads: Loads, write: Write) -> None:
    """With --check, by line, and loads nothing."""
    loads.execute("CREATE TABLE t (a int)")
    outcome = loads.check(target(write('{"a":1}\n\n{"a":"x"}\n{"a":2,}\n'), format="jsonl"))
    assert [(problem.line, problem.column) for problem in outcome.problems] == [(3, "a"), (4, None)]
    assert loads.count() == 0


# ---------------------------------------------------------------- kills

_PROGRAM = """
import os, signal, sys
from penstock.api import functions
from penstock.loading import loader
from penstock.loading.copy.payload import Encoder
from penstock.core.tuning import BatchPlan, LoadTuning

left = int(sys.argv[3])

def encode(self, block):
    global left
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    left -= 1
    return plainly(self, block)

plainly, Encoder.encode = Encoder.encode, encode
batch = BatchPlan(limit_bytes=300_000, duration_s=None, chunk_bytes=100_000, round_trips_per_chunk=0)
functions.Loader = lambda *args: loader.Loader(*args, tuning=LoadTuning(batch=batch))
functions.load(sys.argv[1], "public.t", to=sys.argv[2], sessions=2, retry_for=0, no_record=True, vacuum=False,
               create=True, types="infer")
"""


@pytest.mark.part("rest")
def test_killed_load_is_resumed_inside_the_file(
    loads: Loads, tmp_path: Path, rng: random.Random, some: Callable[[Sequence[int], int], list[int]]
) -> None:
    """Kill -9 before any block, seeded; another load ends what is left, no record lost or repeated."""
    path = tmp_path / "f.jsonl.gz"
    records = [
        {"id": number, "v": [number, "x" * rng.randrange(400)], "Odd" if number % 2 else "b": 1}
        for number in range(20_000)
    ]
    path.write_bytes(gzip.compress("\n\n".join(json.dumps(record) for record in records).encode(), 1))
    for moment in some(rng.sample(range(9), 6), 6):
        argv = [sys.executable, "-c", _PROGRAM, str(path), loads.conninfo, str(moment)]
        killed = subprocess.run(argv, check=False, env=os.environ | {"PYTHONPATH": "src"}, capture_output=True)
        assert killed.returncode == -signal.SIGKILL, killed.stderr
        before = loads.count() if loads.has_table("t") else 0
        assert loads.run(make_target(path, into="public.t")).rows == 20_000 - before
        found = loads.execute("SELECT count(*), count(DISTINCT id), count(odd), count(b), count(v -> 1) FROM t")
        assert found == [(20_000, 20_000, 10_000, 10_000, 20_000)]
        loads.execute("DROP TABLE t; DELETE FROM penstock.loads")


# ---------------------------------------------------------------- what is looked at before a load


@pytest.mark.parametrize("length_bytes", [33_000, 263_000, 1_100_000])
@pytest.mark.parametrize("options", [{}, {"types": "infer"}, {"format": "jsonl"}], ids=str)
def test_first_record_may_be_longer_than_what_is_looked_at(
    loads: Loads, write: Write, length_bytes: int, options: dict[str, Any]
) -> None:
    """In the first file and in others, compressed or not: the table has the names of the first record."""
    texts = [_lines({"id": number, "v": "x" * length_bytes, f"n{number}": 1}, {"id": 9, "v": "y"}) for number in (1, 2)]
    paths = [write(text, f"{number}.jsonl") for number, text in enumerate(texts)]
    paths[1].write_bytes(gzip.compress(texts[1].encode()))
    types = options.pop("types", "text")
    job = replace(target(paths, create=True, skip=["n2"], **options), types=types, missing="default")
    assert loads.run(job).rows == 4
    found = loads.execute("SELECT id::int, length(v), n1::int FROM t ORDER BY 1, 2 DESC")
    assert found == [(1, length_bytes, 1), (2, length_bytes, None), (9, 1, None), (9, 1, None)]


@pytest.mark.parametrize("options", [{}, {"format": "jsonl"}], ids=str)
def test_first_record_longer_than_the_limit_is_refused_by_an_option(
    loads: Loads, write: Write, options: dict[str, Any]
) -> None:
    """Nothing more of it is read, and no table is created."""
    path = write(_lines({"id": 1, "v": "x" * 3_000_000}, {"id": 2}))
    rules = replace(_REJECTING, on_error="stop", max_record=1_000_000)
    with pytest.raises(DataError, match="the first record is longer than 1") as caught:
        loads.run(target(path, create=True, **options), rules=rules)
    assert "--max-record" in (caught.value.hint or "")
    assert not loads.has_table("t")
    assert loads.run(target(path, create=True, **options), rules=replace(rules, max_record=4_000_000)).rows == 2


@pytest.mark.parametrize("format_name", [None, "jsonl"])
@pytest.mark.parametrize(
    ("text", "name"),
    [
        ('{\n  "a": 1\n}\n{\n  "a": 2\n}\n', "JSON whose objects do not have a line each"),
        ('[{"a":1},{"a":2}]\n', "a JSON array"),
        ('{"a":1},\n{"a":2},\n', "JSON with a comma after each record"),
    ],
)
def test_json_without_a_line_for_each_record_is_refused_in_any_file(
    loads: Loads, write: Write, text: str, name: str, format_name: str | None
) -> None:
    """As the only file, and beside a good one: the hint's command is for that file."""
    good, bad = write(_lines({"a": 1}), "good.jsonl"), write(text, "later.json")
    for paths in ([bad], [good, bad], [bad, good]):
        options = {} if format_name is None else {"format": format_name}
        error = loads.refuse(target(paths, create=True, **options))
        assert f'"{bad}" is {name}, not' in error.message
        assert f" {bad} > {bad}.jsonl" in (error.hint or "")
        assert not loads.has_table("t")


@pytest.mark.parametrize("depth", [990, 1_100, 50_000])
def test_first_record_may_be_nested_deep(loads: Loads, write: Write, depth: int) -> None:
    """More than 1,000 deep it is an error of that record, and it can be rejected."""
    deep = f'{{"id": 1, "v": {"[" * depth}{"]" * depth}}}'
    loads.execute("CREATE TABLE t (id int, v text)")
    path = write(_lines(deep, {"id": 2}))
    if depth > 1_000:
        error = loads.refuse(target(path))
        assert str(error.location) == f"{path} line 1"
    assert loads.run(target(path), rules=_REJECTING).rejected == int(depth > 1_000)


def test_a_load_that_adds_columns_is_verified_by_name(loads: Loads, write: Write) -> None:
    """Although the table has one column of type jsonb, which would get the whole record without --add-columns."""
    loads.execute("CREATE TABLE t (id bigserial, doc jsonb)")
    path = write(_lines({"doc": {"a": 1}}, {"doc": {"a": 2}}))
    outcome = loads.run(make_target(path, create=False, types="text", add_columns=True))
    assert penstock.verify(str(outcome.load_id), to=loads.conninfo, values=True).is_verified


def test_a_killed_upsert_into_a_created_table_is_resumed(loads: Loads, write: Write) -> None:
    """By the names of all files, as it began. Its values are not compared, and the reason is said."""
    paths = [write(_lines({"id": 1, "b": 1}), "1.jsonl"), write(_lines({"id": 2, "c": 2}), "2.jsonl")]
    job = make_target(*paths, mode="upsert", key=("id",))

    doomed = Loads(loads.conninfo, piece_bytes=8)

    def die(_number: int) -> None:
        # The types are found before the table is created.
        if loads.has_table("t"):
            raise Killed

    doomed.at_piece = die
    with pytest.raises(Killed):
        doomed.run(job)
    outcome = loads.run(job)
    assert loads.execute("SELECT id, b, c FROM t ORDER BY id") == [(1, 1, None), (2, None, 2)]
    with pytest.raises(TargetError) as caught:
        penstock.verify(str(outcome.load_id), to=loads.conninfo, values=True)
    assert "does not name all columns" in (caught.value.detail or "")
