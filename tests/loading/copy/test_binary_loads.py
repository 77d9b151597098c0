"""Loads in COPY's binary format store the rows, and end with the errors, that loads as text do."""

from __future__ import annotations

import os
import threading
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.core.connect.connection import ConnectionFactory
from penstock.core.errors import OtherTableError, PenstockError, TargetError, UsageError
from penstock.core.values.job import LoadJob, LoadRules
from penstock.loading.loader import Loader
from support.binary_values import TYPES
from support.loads import IMPATIENT, Loads, target
from support.modes import mode_target

if TYPE_CHECKING:
    import random
    from collections.abc import Callable
    from pathlib import Path

    from penstock.core.values.job import CopyFormat, TargetJob
    from penstock.loading.values.outcome import LoadOutcome
    from penstock.loading.values.plan import CopyChoice
    from support.servers import PgServer

ROWS = 2000
_TABLE = "CREATE TABLE t (n int NOT NULL, d date, x numeric(9,2), w varchar(20))"


@pytest.fixture
def loads(ledger: str) -> Loads:
    """Provide loads in tiny blocks into a database with a table t."""
    return Loads(ledger, piece_bytes=2000, chunk_bytes=4000, setup=_TABLE)


def job(path: Path, copy_format: CopyFormat = "binary", **options: object) -> TargetJob:
    """Return a target whose rows are sent in a format."""
    return replace(target(path, **options), copy_format=copy_format)  # type: ignore[arg-type]


def write(path: Path, lines: dict[int, str] | None = None, *, rows: int = ROWS, header: str = "n,d,x,w") -> Path:
    """Write a csv file; `lines` has the records that are not as the others, by their number."""
    records = (f'{n},2026-01-{n % 28 + 1:02},{n}.5,"w {n}"' for n in range(rows))
    changed = (record if lines is None or n not in lines else lines[n] for n, record in enumerate(records))
    path.write_text("".join(f"{line}\n" for line in (header, *changed)))
    return path


def plan_choice(loads: Loads, job: TargetJob, rules: LoadRules = IMPATIENT) -> CopyChoice:
    """Return the format that is planned for the first target."""
    with Loader(ConnectionFactory(loads.conninfo), tuning=loads.tuning) as loader:
        return loader.plan(LoadJob(targets=(job,), rules=rules)).targets[0].copy


def sent_as(outcome: LoadOutcome, path: Path) -> CopyFormat:
    """Return the format that all blocks were sent in: as text the payload is the file without its header."""
    header_bytes = len(path.read_bytes().split(b"\n")[0]) + 1
    return "text" if outcome.bytes_copied == path.stat().st_size - header_bytes else "binary"


@pytest.mark.parametrize("sessions", [1, 3])
def test_rows_are_those_of_a_load_as_text(loads: Loads, tmp_path: Path, sessions: int) -> None:
    """Of quoted and empty fields, nulls, and values that the receive functions round and pad."""
    others = {
        7: '8,,1.005,""',
        20: '21,2026-02-01,-0.001,"a ""b"", c"',
        21: "22,0001-01-01,,",
        22: '"23",9999-12-31,0,é',
    }
    path = write(tmp_path / "f.csv", others)
    found = {}
    for copy_format in ("text", "binary"):
        outcome = loads.run(job(path, copy_format), sessions=sessions, rules=replace(IMPATIENT, again=True))
        assert (outcome.rows, sent_as(outcome, path)) == (ROWS, copy_format)
        found[copy_format] = loads.rows()
        loads.execute("TRUNCATE t")
    assert found["text"] == found["binary"]


@pytest.mark.part("rest")
@pytest.mark.parametrize(
    "hostile",
    ["1,31.01.2026,1,w", "1,infinity,1,w", "1,2026-01-01,1e2,w", "+1,2026-01-01,1,w", "0x1,,,w", '1,,,"a\rb"'],
)
@pytest.mark.parametrize("each", [40, 400], ids=["often", "rarely"])
def test_blocks_with_values_in_other_forms_go_as_text(loads: Loads, tmp_path: Path, hostile: str, each: int) -> None:
    """Some blocks or, where they are many, the rest of the file; the rows are the same."""
    loads.execute("ALTER DATABASE current SET DateStyle = 'ISO, DMY'".replace("current", _database(loads)))
    path = write(tmp_path / "f.csv", dict.fromkeys(range(5, ROWS, each), hostile))
    expected: list[object] = []
    for copy_format in ("text", "binary"):
        try:
            loads.run(job(path, copy_format), sessions=1, rules=replace(IMPATIENT, again=True))
            result: object = loads.execute("SELECT n, d::text, x, w FROM t ORDER BY n, w")
        except PenstockError as error:
            # Before PostgreSQL 16 0x1 is no integer.
            result = (error.message, error.location)
        expected.append(result)
        loads.execute("TRUNCATE t")
    assert expected[0] == expected[1]


def _database(loads: Loads) -> str:
    return str(loads.execute("SELECT quote_ident(current_database())")[0][0])


_TRIGGER = """
    CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN IF NEW.n = 99999 THEN RAISE EXCEPTION 'no' USING HINT = 'h'; END IF; RETURN NEW; END$$;
    CREATE TRIGGER g BEFORE INSERT ON t FOR EACH ROW EXECUTE FUNCTION f()
"""
_DEFERRED = """
    CREATE TABLE u (n int PRIMARY KEY);
    ALTER TABLE t ADD FOREIGN KEY (n) REFERENCES u (n) DEFERRABLE INITIALLY DEFERRED
"""
_REFUSED = {
    "null": ("", ",2026-01-01,1,w"),
    "check": ("ALTER TABLE t ADD CHECK (x < 1200)", "1300,2026-01-01,1300,w"),
    "unique": ("CREATE UNIQUE INDEX ON t (n)", "3,2026-01-01,1,w"),
    "length": ("", f"1,2026-01-01,1,{'w' * 21}"),
    "precision": ("", "1,2026-01-01,12345678.9,w"),
    "type": ("", "x,2026-01-01,1,w"),
    "encoding": ("", "1,2026-01-01,1,\udce9"),
    "extra field": ("", "1,2026-01-01,1,w,v"),
    "missing field": ("", "1,2026-01-01,1"),
    "trigger": (_TRIGGER, "99999,,,"),
    "deferred": (_DEFERRED, "77777,,,"),
}


@pytest.mark.part("rest")
@pytest.mark.parametrize("case", _REFUSED)
@pytest.mark.parametrize("batch_bytes", [None, 20_000], ids=["one batch", "batches"])
def test_errors_are_those_of_a_load_as_text(loads: Loads, tmp_path: Path, case: str, batch_bytes: int | None) -> None:
    """Message, detail, hint, SQLSTATE, file, line, column; and as many rows stay."""
    setup, record = _REFUSED[case]
    if setup:
        loads.execute(setup)
    if case == "deferred":
        loads.execute(f"INSERT INTO u SELECT generate_series(0, {ROWS})")
    path = tmp_path / "f.csv"
    write(path)
    records = path.read_text().splitlines()
    records[1501] = record
    path.write_bytes("\n".join([*records, ""]).encode(errors="surrogateescape"))
    errors = []
    for copy_format in ("text", "binary"):
        with pytest.raises(PenstockError) as caught:
            loads.run(job(path, copy_format), sessions=1, batch_bytes=batch_bytes)
        error, load_id = caught.value, str(caught.value.load_id)
        texts = [str(text).replace(load_id, "ID") for text in (error.message, error.detail, error.hint)]
        errors.append([type(error), *texts, error.sqlstate, error.location, loads.count()])
        loads.execute("TRUNCATE t; DROP SCHEMA IF EXISTS penstock CASCADE")
    assert errors[0] == errors[1]
    # Bytes that are not UTF-8 are found in the sample.
    assert (errors[0][-1] == 0) == (batch_bytes is None or case == "encoding")


# Once, as a sequence is not rolled back.
_CANCELLED = """
    CREATE SEQUENCE s;
    CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN IF nextval('s') = 1500 THEN PERFORM pg_cancel_backend(pg_backend_pid()); END IF; RETURN NEW; END$$;
    CREATE TRIGGER g BEFORE INSERT ON t FOR EACH ROW EXECUTE FUNCTION f()
"""


def test_a_cancelled_statement_ends_the_load(loads: Loads, tmp_path: Path) -> None:
    """Whoever cancels it wants no rows: the batch is not sent again as text."""
    loads.execute(_CANCELLED)
    error = loads.refuse(job(write(tmp_path / "f.csv")), sessions=1)
    assert (error.sqlstate, loads.notices) == ("57014", [])


@pytest.mark.parametrize("first", ["text", "binary"])
def test_a_load_resumes_in_the_other_format(loads: Loads, tmp_path: Path, first: CopyFormat) -> None:
    """Committed ranges are bytes of the file, whatever was sent for them."""
    path = write(tmp_path / "f.csv", {1500: "xxxx,2026-01-01,1,w"})
    other: CopyFormat = "binary" if first == "text" else "text"
    rows = loads.assert_resumes(job(path, first), job(path, other), lambda: write(path, {1500: "1500,2026-01-01,1,w"}))
    assert sorted(n for n, *_ in rows) == list(range(ROWS))


def _run_planned(loads: Loads, job: TargetJob, between: Callable[[], object]) -> LoadOutcome:
    with Loader(ConnectionFactory(loads.conninfo), tuning=loads.tuning) as loader:
        plan = loader.plan(LoadJob(targets=(job,), sessions=2, rules=IMPATIENT))
        between()
        return loader.run(plan, on_notice=loads.notices.append)


# Types of the same width as int, so that COPY takes the bytes for a value, and of another.
_CHANGES = ["real USING n::real", "oid USING n::bigint::oid", "bigint", "text"]


@pytest.mark.parametrize("change", _CHANGES)
def test_type_changed_between_plan_and_load_stores_no_row(loads: Loads, tmp_path: Path, change: str) -> None:
    """COPY checks no types in the binary format: four bytes of an int would be a real."""
    path = write(tmp_path / "f.csv")
    with pytest.raises(OtherTableError, match="columns of table"):
        _run_planned(loads, job(path), lambda: loads.execute(f"ALTER TABLE t ALTER n TYPE {change}"))
    assert loads.count() == 0


@pytest.mark.parametrize("change", _CHANGES)
def test_type_changed_between_two_batches_undoes_the_batch_that_met_it(
    loads: Loads, tmp_path: Path, change: str
) -> None:
    """What was committed before stays, and is what the file has."""
    done: list[int] = []

    def look(piece: int) -> None:
        if piece == 20 and not done:
            done.append(piece)
            loads.execute(f"ALTER TABLE t ALTER n TYPE {change}")

    acting = Loads(loads.conninfo, piece_bytes=2000, chunk_bytes=2000)
    acting.at_piece = look
    with pytest.raises(OtherTableError, match="columns of table"):
        acting.run(job(write(tmp_path / "f.csv")), batch_bytes=1)
    assert 0 < loads.count() < ROWS
    assert loads.execute(f"SELECT count(*) FROM t WHERE n::text::int NOT BETWEEN 0 AND {ROWS}") == [(0,)]


@pytest.mark.parametrize("change", _CHANGES)
def test_a_replacement_whose_types_differ_from_the_plan_is_loaded_as_text(
    loads: Loads, tmp_path: Path, change: str
) -> None:
    """The new table has the types of the old one when the load begins, and its columns have other numbers."""
    loads.execute("ALTER TABLE t ADD gone int; ALTER TABLE t DROP gone")
    path = write(tmp_path / "f.csv")
    planned = replace(mode_target(path, "replace"), copy_format="binary")
    _run_planned(loads, planned, lambda: loads.execute(f"ALTER TABLE t ALTER n TYPE {change}"))
    assert sorted(int(n) for n, *_ in loads.rows()) == list(range(ROWS))
    assert any("as text" in notice for notice in loads.notices)


def test_a_replacement_is_loaded_in_the_binary_format(loads: Loads, tmp_path: Path) -> None:
    """Although its columns have other numbers than those of the old table."""
    loads.execute("ALTER TABLE t ADD gone int; ALTER TABLE t DROP gone; ALTER TABLE t ADD more int")
    path = write(tmp_path / "f.csv")
    outcome = loads.run(replace(mode_target(path, "replace"), copy_format="binary", missing="default"))
    assert sent_as(outcome, path) == "binary"
    assert loads.count() == ROWS


_UNSUITED = {
    "json": ("ALTER TABLE t ALTER w TYPE json USING NULL", {}, {}, 'column "w", type json'),
    "domain": (
        "CREATE DOMAIN o AS int CHECK (VALUE > 0); ALTER TABLE t ALTER n TYPE o",
        {},
        {},
        'column "n", type public.o',
    ),
    "enum": (
        "CREATE TYPE e AS ENUM ('a'); ALTER TABLE t ALTER w TYPE e USING NULL",
        {},
        {},
        'column "w", type public.e',
    ),
    "array": ("ALTER TABLE t ALTER n TYPE int[] USING NULL", {}, {}, 'column "n", type integer[]'),
    "time": ("ALTER TABLE t ALTER w TYPE time USING NULL", {}, {}, 'column "w", type time'),
    "skip": ("", {"skip": ("w",)}, {}, "are skipped"),
    "set": ("ALTER TABLE t ADD c text", {"constants": {"c": "x"}}, {}, "--set"),
    "nulls": ("", {"nulls": ("", "NULL")}, {}, "(--null)"),
    "force null": ("", {"force_null": ("w",)}, {}, "--force-null"),
    "escape": ("", {"escape": "\\"}, {}, "quote and escape"),
    "encoding": ("", {"encoding": "LATIN1"}, {}, "not in UTF8"),
    "reject": ("", {}, {"on_error": "reject"}, "(--on-error reject)"),
}


@pytest.mark.part("rest")
@pytest.mark.parametrize("case", _UNSUITED)
def test_what_the_binary_format_cannot_carry_is_planned_as_text(loads: Loads, tmp_path: Path, case: str) -> None:
    """Choice auto says why, and binary is an error that names the column or the option."""
    setup, options, rules, words = _UNSUITED[case]
    if setup:
        loads.execute(setup)
    path, rule = write(tmp_path / "f.csv"), replace(IMPATIENT, **rules)  # type: ignore[arg-type]
    planned = {name: replace(job(path, name, **options), missing="default") for name in ("auto", "binary")}
    choice = plan_choice(loads, planned["auto"], rule)
    assert choice.format == "text"
    assert words in choice.reason
    with pytest.raises((TargetError, UsageError), match="--copy-format binary") as caught:
        plan_choice(loads, planned["binary"], rule)
    assert words.lower() in str(caught.value.detail).lower()


def test_staged_records_are_planned_as_text(loads: Loads, tmp_path: Path) -> None:
    """They carry their positions."""
    loads.execute("CREATE UNIQUE INDEX ON t (n)")
    choice = plan_choice(loads, mode_target(write(tmp_path / "f.csv"), "upsert", key=("n",)))
    assert (choice.format, "(--mode" in choice.reason) == ("text", True)


def test_a_pipe_is_planned_as_text(loads: Loads, tmp_path: Path) -> None:
    """It cannot be read again if the server refuses a batch."""
    pipe, text = tmp_path / "p", write(tmp_path / "f.csv").read_bytes()
    os.mkfifo(pipe)
    writer = threading.Thread(target=lambda: pipe.write_bytes(text))
    writer.start()
    with Loader(ConnectionFactory(loads.conninfo)) as loader:
        plan = loader.plan(LoadJob(targets=(job(pipe, "auto"),), rules=IMPATIENT))
        assert (plan.targets[0].copy.format, "only once" in plan.targets[0].copy.reason) == ("text", True)
        assert loader.run(plan).rows == ROWS
    writer.join()


def test_columnar_files_have_a_format_of_their_own(loads: Loads, tmp_path: Path) -> None:
    """The option is refused, and not passed over."""
    path = tmp_path / "f.parquet"
    pq.write_table(pa.table({"n": [1]}), path)
    with pytest.raises(UsageError, match="not for columnar files"):
        loads.run(replace(job(path), missing="default"))


def test_json_lines_go_as_text(loads: Loads, tmp_path: Path) -> None:
    """They are written again, as COPY text."""
    path = tmp_path / "f.jsonl"
    path.write_text('{"n": 1, "d": "2026-01-31", "x": 1.5, "w": "a"}\n')
    assert "JSON Lines" in plan_choice(loads, job(path, "auto")).reason
    loads.run(job(path, "auto"))
    with pytest.raises(UsageError, match="--copy-format binary"):
        loads.run(job(path, "binary"))


def test_objects_beside_a_refused_one_keep_their_rows(loads: Loads, tmp_path: Path) -> None:
    """Each row is stored once, by whichever attempt and in whichever format."""
    loads.execute("ALTER TABLE t ADD CHECK (x < 5)")
    paths = [tmp_path / f"{number}.csv" for number in range(4)]
    for number, path in enumerate(paths):
        lines = {n: f"{n + number * ROWS},2026-01-01,1,w" for n in range(ROWS)}
        write(path, lines | ({1700: "5700,2026-01-01,9,w"} if number == 2 else {}))
    every = replace(job(paths[0]), sources=tuple(map(str, paths)))
    with pytest.raises(PenstockError, match="violates check") as caught:
        loads.run(every, batch_bytes=10_000)
    location = caught.value.location
    assert location is not None
    assert (location.file, location.line) == (str(paths[2]), 1702)
    write(paths[2], {n: f"{n + 2 * ROWS},2026-01-01,1,w" for n in range(ROWS)})
    loads.run(every, rules=replace(IMPATIENT, changed="load"))
    assert sorted(n for n, *_ in loads.rows()) == list(range(4 * ROWS))


def test_auto_weighs_types_and_widths(loads: Loads, tmp_path: Path) -> None:
    """Short texts go as text, a table with a date does not; a small load is not weighed."""
    loads.execute("CREATE TABLE short (a text, b text)")
    path = tmp_path / "s.csv"
    path.write_text("a,b\n" + "ab,cd\n" * 1000)
    dates = write(tmp_path / "f.csv")
    assert "too small" in plan_choice(loads, job(dates, "auto")).reason
    loads.tune(least_binary_bytes=0)
    assert plan_choice(loads, job(dates, "auto")).format == "binary"
    choice = plan_choice(loads, job(path, "auto", into="short"))
    assert (choice.format, "cost model" in choice.reason) == ("text", True)
    odd = write(tmp_path / "g.csv", {900: "1,31.1.2026,1,w"})
    choice = plan_choice(loads, job(odd, "auto"))
    assert 'line 902, column "d"' in choice.reason


def test_plan_says_when_quotes_are_left_out(pg: PgServer, tmp_path: Path) -> None:
    """Not before PostgreSQL 19, nor as text, nor where an option requires the lines of the file."""
    loads = Loads(pg.fresh_database(), setup="CREATE TABLE t (n int, d date, x numeric, w json)", least_binary_bytes=0)
    path = write(tmp_path / "f.csv")
    choice = plan_choice(loads, job(path, "auto"))
    assert choice.is_plain == (pg.major >= 19) == ("without quotes" in choice.reason)
    assert not plan_choice(loads, job(path, "text")).is_plain
    assert not plan_choice(loads, job(path, "auto", force_null=("*",))).is_plain
    assert not plan_choice(loads, job(path, "auto"), replace(IMPATIENT, on_error="reject")).is_plain
    loads.tune(least_binary_bytes=1 << 30)
    assert not plan_choice(loads, job(path, "auto")).is_plain


def _make_table(rng: random.Random, columns: int) -> tuple[str, list[str]]:
    names = rng.choices([*TYPES], k=columns)
    table = ", ".join(f"c{number} {TYPES[name].sql_type}" for number, name in enumerate(names))
    return table, names


def _write_random(path: Path, names: list[str], rng: random.Random, *, file_format: str) -> None:
    def spell(name: str) -> str:
        if rng.random() < 0.05:
            return "" if file_format == "csv" else "\\N"
        values = TYPES[name]
        hostile = [text for texts in values.others.values() for text in texts]
        text = values.make(rng)
        if hostile and rng.random() < 0.0005:
            text = rng.choice([each for each in hostile if not each.startswith(("+", " "))])
        if file_format == "csv" and (any(byte in text for byte in '",') or not text or rng.random() < 0.05):
            return '"' + text.replace('"', '""') + '"'
        return text

    separator = "," if file_format == "csv" else "\t"
    lines = (separator.join(spell(name) for name in names) for _ in range(1500))
    path.write_bytes("".join(f"{line}\n" for line in lines).encode())


@pytest.mark.part("rest")
@pytest.mark.parametrize("number", range(6))
def test_random_tables_hold_the_rows_of_a_load_as_text(
    loads: Loads, tmp_path: Path, rng: random.Random, number: int
) -> None:
    """EXCEPT ALL both ways is empty, also where some blocks go as text; what is refused is refused alike."""
    for _ in range(number):
        rng.random()
    table, names = _make_table(rng, rng.randrange(1, 11))
    path, file_format = tmp_path / "f", rng.choice(("csv", "text", "tsv"))
    _write_random(path, names, rng, file_format=file_format)
    loads.execute(f"CREATE TABLE a ({table}); CREATE TABLE b ({table})")
    errors: Counter[str] = Counter()
    for into, copy_format in (("a", "text"), ("b", "binary")):
        try:
            loads.run(
                job(path, copy_format, into=into, format=file_format, has_header=False, encoding="UTF8"),  # type: ignore[arg-type]
                sessions=1,
            )
        except PenstockError as error:
            errors[f"{error.message} {error.location}"] += 1
    assert not errors or list(errors.values()) == [2]
    cast = ", ".join(f"c{number}::text" for number in range(len(names)))
    for one, other in (("a", "b"), ("b", "a")):
        assert loads.execute(f"SELECT {cast} FROM {one} EXCEPT ALL SELECT {cast} FROM {other}") == []
