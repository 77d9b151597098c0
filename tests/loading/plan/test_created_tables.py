"""What --create makes of files: a table of any that has records, and a warning where its names are not the header's."""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from penstock.core.connect.connection import ConnectionFactory
from penstock.core.errors import DataError, TargetError, UsageError
from penstock.core.values.job import Housekeeping, LoadJob, LoadRules
from penstock.loading.loader import Loader
from support.codes import has_code
from support.files import write_to
from support.loads import AGAIN, IMPATIENT, Loads, target
from support.modes import Killed

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.core.errors import PenstockError
    from penstock.core.values.job import Mode, Types


@pytest.fixture
def loads(ledger18: str) -> Loads:
    """Provide loads in tiny blocks into a database with nothing but a ledger, on the newest version."""
    return Loads(ledger18, piece_bytes=501)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Provide a file's path."""
    return tmp_path / "file"


def _columns(loads: Loads) -> list[str]:
    asked = "SELECT attname FROM pg_attribute WHERE attrelid = 't'::regclass AND attnum > 0 ORDER BY attnum"
    return [name for (name,) in loads.execute(asked)]


@pytest.mark.parametrize(
    ("data", "columns", "rows"),
    [
        ("1,2\n3,4\n", ["column_1", "column_2"], 2),
        ("a,A,,a\n1,2,3,4\n", ["a", "a_2", "column_3", "a_3"], 1),
        (f"{'x' * 70},{'x' * 80}\n1,2\n", ["x" * 63, "x" * 61 + "_2"], 1),
        ("XMIN,xmin_2,ctid,oid\n1,2,3,4\n", ["xmin_3", "xmin_2", "ctid_2", "oid"], 1),
        ("tableoid,xmax,cmin,cmax\n1,2,3,4\n", ["tableoid_2", "xmax_2", "cmin_2", "cmax_2"], 1),
        ("a;b\n1;2\n", ["a", "b"], 1),
    ],
)
def test_any_file_makes_a_table_twice(loads: Loads, path: Path, data: str, columns: list[str], rows: int) -> None:
    """The names that it was made with are those that the same file is mapped to when the table exists."""
    path.write_text(data)
    loads.run(target(path, create=True), rules=AGAIN)
    codes = {warning.code for warning in loads.warnings}
    loads.run(target(path, create=True), rules=AGAIN)
    assert _columns(loads) == columns
    assert len(loads.execute("SELECT * FROM t")) == 2 * rows
    assert ("column-names" in codes) is (columns != ["a", "b"])


def test_repeated_names_keep_their_fields_apart(loads: Loads, path: Path) -> None:
    """Also where another file of the load has them in another order."""
    path.write_text("a,b,a\n1,2,3\n")
    other = path.with_name("other")
    other.write_text("b,a,a\n5,4,6\n")
    loads.run(target([path, other], create=True))
    assert sorted(loads.execute("SELECT a, b, a_2 FROM t")) == [("1", "2", "3"), ("4", "5", "6")]


def test_delimiter_of_all_records_beats_one_of_none(loads: Loads, path: Path) -> None:
    """Two records of other lengths are not one column of a header with semicolons."""
    path.write_text('"name";"limit"\n"x";"1";"2"\n')
    with pytest.raises(Exception, match="extra data after last expected column"):
        loads.run(target(path, create=True))


def test_empty_file_makes_no_table(loads: Loads, path: Path) -> None:
    """There is nothing to load, and a warning says so."""
    path.write_text("")
    loads.run(target(path, create=True))
    assert not loads.has_table("t")
    assert [(warning.code, warning.message) for warning in loads.warnings] == [
        ("empty", 'every source is empty: table "t" is not created')
    ]


@pytest.mark.parametrize("data", ["Name,City\nAnn,Rome\nBob,Oslo\nEve,Bonn\n", "Name,City\n"])
def test_words_over_words_are_refused_where_they_could_be_data(loads: Loads, path: Path, data: str) -> None:
    """Spelled like the records below, or over none: both readings are shown, and either option decides."""
    path.write_text(data)
    refused = loads.refuse(target(path, create=True))
    assert refused.message == "the first line may be a header or a record"
    assert refused.detail is not None
    assert 'With --header, columns are named "Name", "City".' in refused.detail
    loads.run(target(path, create=True, header=False))
    assert (_columns(loads), loads.count()) == (["column_1", "column_2"], data.count("\n"))


def test_words_that_are_spelled_unlike_all_below_are_a_header(loads: Loads, path: Path) -> None:
    """And nobody is warned."""
    path.write_text("name,city\nAnn,Rome\nBob,Oslo\nEve,Bonn\n")
    loads.run(target(path, create=True))
    assert (_columns(loads), loads.warnings) == (["name", "city"], ())


def test_lines_before_the_header_are_proposed_to_be_skipped(loads: Loads, path: Path) -> None:
    """By the error, with the number that loads the file."""
    rows = "".join(f"{number},x{number},y\n" for number in range(400))
    path.write_text(f"Report\n2026\nid,name,note\n{rows}")
    refused = loads.refuse(target(path, create=True))
    assert refused.hint is not None
    assert "--skip-lines 2" in refused.hint
    loads.run(target(path, create=True, skip_lines=2))
    assert (_columns(loads), loads.count()) == (["id", "name", "note"], 400)


def test_load_behind_skipped_lines_is_resumed(loads: Loads, path: Path) -> None:
    """What is committed is known by its place behind them, and lines are the file's own."""
    loads.chop(1000)
    rows = [f"{number},x" for number in range(3000)]
    path.write_text("\n".join(["one", "two", "a,b", *rows[:2000], "bad", *rows[2001:], ""]))
    loads.execute("CREATE TABLE t (a int, b text)")
    job = target(path, skip_lines=2)
    with pytest.raises(Exception, match="line 2004"):
        loads.run(job, batch_bytes=2000, sessions=1)
    assert loads.count() > 0
    path.write_text("\n".join(["one", "two", "a,b", *rows, ""]))
    loads.run(job, rules=LoadRules(retry_for=0.0, changed="load"))
    assert (loads.count(), loads.execute("SELECT count(DISTINCT a) FROM t")) == (3000, [(3000,)])


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_line_that_names_excels_separator_is_skipped(loads: Loads, path: Path, end: str) -> None:
    """It says the delimiter, even of records that others divide too."""
    path.write_bytes(end.join(["sep=;", "a;b", "1,5;2,5", ""]).encode())
    loads.run(target(path, create=True))
    assert loads.rows() == [("1,5", "2,5")]
    assert [warning.code for warning in loads.warnings] == ["separator-line"]


def test_each_line_that_names_excels_separator_is_warned_of(loads: Loads, path: Path) -> None:
    """Those of further files, too."""
    other = path.with_name("other")
    for each in (path, other):
        each.write_text("sep=;\na;b\n1;2\n")
    outcome = loads.run(target([path, other], create=True))
    assert [(each.code, each.uri, each.line) for each in outcome.warnings] == [
        ("separator-line", str(each), 1) for each in (path, other)
    ]


@pytest.mark.parametrize(
    "dialect", [{"delimiter": ";"}, {"format": "text", "delimiter": ";"}, {"format": "tsv", "delimiter": ";"}]
)
def test_line_like_excels_is_data_where_an_option_says_the_delimiter(
    loads: Loads, path: Path, dialect: dict[str, str]
) -> None:
    """As COPY has it, in every file."""
    loads.execute("CREATE TABLE t (a text, b text)")
    other = path.with_name("other")
    for each in (path, other):
        each.write_text("sep=;\n1;2\n")
    loads.run(target([path, other], header=False, **dialect))
    assert [a for a, _ in loads.rows()] == ["1", "1", "sep=", "sep="]


@pytest.mark.parametrize("format_name", ["text", "tsv"])
def test_line_like_excels_is_data_of_other_formats(loads: Loads, path: Path, format_name: str) -> None:
    """Without a delimiter, too."""
    loads.execute("CREATE TABLE t (a text)")
    path.write_text("sep=;\n1\n")
    loads.run(target(path, header=False, format=format_name))
    assert loads.rows() == [("1",), ("sep=;",)]


def test_separators_of_a_load_are_the_same(loads: Loads, path: Path) -> None:
    """Another file's own is no guess."""
    path.write_text("sep=;\na;b\n1;2\n")
    other = path.with_name("other")
    other.write_text("sep=|\na|b\n1|2\n")
    assert "sep=|" in str(loads.refuse(target([path, other], create=True)).detail)


@pytest.mark.parametrize("columns", [("a",), ("*",)])
def test_quoted_fields_of_forced_columns_are_null(loads: Loads, path: Path, columns: tuple[str, ...]) -> None:
    """As COPY's FORCE_NULL does; what --set gives stays as it is."""
    loads.execute("CREATE TABLE t (a int, b text, c text)")
    path.write_text('a,b\n"",""\n"1","x"\n')
    loads.run(target(path, force_null=columns, constants={"c": ""}))
    assert loads.rows() == [(1, "x", ""), (None, None if columns == ("*",) else "", "")]


def test_forced_column_is_the_tables(loads: Loads, path: Path) -> None:
    """Another is refused, as is another format than csv."""
    loads.execute("CREATE TABLE t (a int, b text)")
    path.write_text('a,b\n"","x"\n')
    assert '"none" of --force-null' in loads.refuse(target(path, force_null=("none",))).message
    assert "CSV mode" in loads.refuse(target(path, format="text", delimiter=",", force_null=("a",))).message
    several = loads.refuse(target(path, force_null=("a",), null=("x", "y"))).message
    assert several == "--force-null cannot be used with several --null"


@pytest.mark.parametrize(
    ("columns", "error"),
    [
        ("country text, code text, a int, b int, c int", TargetError),
        ("country text, x text, a int, b int, c int", DataError),
    ],
)
def test_first_line_with_names_of_columns_and_numbers_is_no_row(
    loads: Loads, path: Path, columns: str, error: type[PenstockError]
) -> None:
    """Two columns of the table make it a header, of which years are no columns; one leaves the choice to an option."""
    loads.execute(f"CREATE TABLE t ({columns})")
    path.write_text("country,code,1960,1961,1962\nAruba,ABW,1,2,3\nChad,TCD,4,5,6\n")
    refused = loads.refuse(target(path))
    assert type(refused) is error
    assert "--no-header" in (refused.hint or "")
    loads.run(target(path, header=True, columns=["country", "code" if "code" in columns else "x", "a", "b", "c"]))
    assert loads.count() == 2


def test_missing_header_is_told_with_the_option_for_it(loads: Loads, path: Path) -> None:
    """--columns alone would leave the first line as a row."""
    path.write_text("1960,1961\n1,2\n3,4\n")
    loads.run(target(path, create=True))
    assert [warning.code for warning in loads.warnings] == ["column-names"]
    assert "--header" in (loads.warnings[0].hint or "")


def test_loads_that_create_one_table_at_once_share_it(loads: Loads, tmp_path: Path) -> None:
    """All were planned while it did not exist: one creates it, and the others use it."""
    paths = [write_to(tmp_path / f"{number}.csv", f"a,b\n{number},x\n") for number in range(4)]
    with ExitStack() as stack:
        loaders = [stack.enter_context(loads.loader()) for _ in paths]
        plans = [
            loader.plan(LoadJob(targets=(target(path, create=True),), rules=IMPATIENT))
            for loader, path in zip(loaders, paths, strict=True)
        ]
        with ThreadPoolExecutor(len(paths)) as pool:
            outcomes = list(pool.map(lambda loader, plan: loader.run(plan), loaders, plans))
    assert [outcome.rows for outcome in outcomes] == [1, 1, 1, 1]
    assert loads.rows() == [(str(number), "x") for number in range(4)]


def test_table_that_was_created_with_other_columns_is_refused(loads: Loads, tmp_path: Path) -> None:
    """As if it had existed when the load was planned."""
    first, second = (write_to(tmp_path / f"{head}.csv", f"{head},b\n1,x\n") for head in "ac")
    with loads.loader() as loader:
        plan = loader.plan(LoadJob(targets=(target(second, create=True),), rules=IMPATIENT))
        loads.run(target(first, create=True))
        with pytest.raises(TargetError, match='column "c" of the file does not exist'):
            loader.run(plan)
    assert loads.count() == 1


def test_spooled_pipe_is_loaded_into_a_table_that_another_load_has_created(loads: Loads, tmp_path: Path) -> None:
    """The pipe is not read a second time."""
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    first = write_to(tmp_path / "first.csv", "a,b\n1,x\n")
    with (
        ThreadPoolExecutor(1) as pool,
        Loader(ConnectionFactory(loads.conninfo), Housekeeping(spool=True, no_record=True)) as loader,
    ):
        written = pool.submit(fifo.write_text, "a,b\n2,y\n")
        plan = loader.plan(LoadJob(targets=(target(fifo, create=True),), rules=IMPATIENT))
        written.result()
        loads.run(target(first, create=True))
        assert loader.run(plan).rows == 1
    assert loads.rows() == [("1", "x"), ("2", "y")]


def test_load_that_has_created_its_table_is_resumed_by_the_same_command(loads: Loads, path: Path) -> None:
    """The first run found no table, and its name had no schema; the second one finds the table."""
    records = [f"{number},x" for number in range(2000)]
    path.write_text("\n".join(["a,b", *records[:1500], "one,field,too many", *records[1500:], ""]))
    job = target(path, create=True)
    with pytest.raises(DataError):
        loads.run(job, rules=LoadRules(retry_for=0.0), sessions=1, batch_bytes=2000)
    before = loads.count()
    path.write_text("\n".join(["a,b", *records, ""]))
    outcome = loads.run(job, rules=LoadRules(retry_for=0.0, changed="load"))
    assert before > 0
    assert (outcome.rows_before, loads.count()) == (before, 2000)


@pytest.mark.parametrize("mode", ["upsert", "insert-new"])
@pytest.mark.parametrize("types", ["text", "infer"])
def test_key_of_a_merge_becomes_the_primary_key(loads: Loads, path: Path, mode: Mode, types: Types) -> None:
    """With the types that are asked for; the next files are merged by it, and the plan shows it."""
    path.write_text("ID,day,v\n1,2026-01-02,a\n2,2026-01-02,b\n1,2026-01-03,c\n")
    job = replace(target(path, create=True), mode=mode, key=("day", "id"), types=types)
    assert loads.run(job).rows == 3
    keys = "SELECT pg_get_constraintdef(oid) FROM pg_constraint WHERE contype = 'p' AND conrelid = 't'::regclass"
    assert loads.execute(keys) == [("PRIMARY KEY (day, id)",)]
    assert loads.execute(
        "SELECT string_agg(format_type(atttypid, NULL), ' ' ORDER BY attnum), string_agg(attnotnull::text, ' ' ORDER BY"
        " attnum) FROM pg_attribute WHERE attrelid = 't'::regclass AND attnum > 0"
    ) == [("integer date text" if types == "infer" else "text text text", "true true false")]
    path.write_text("id,day,v\n1,2026-01-02,changed\n3,2026-01-02,new\n")
    outcome = loads.run(job, rules=LoadRules(retry_for=0.0, changed="load"))
    assert (outcome.updated, outcome.existing, outcome.rows) == ((1, 0, 2) if mode == "upsert" else (0, 1, 1))
    assert loads.execute("SELECT v FROM t ORDER BY day, id") == [
        ("changed" if mode == "upsert" else "a",),
        ("b",),
        ("new",),
        ("c",),
    ]


def test_record_without_a_key_is_refused_or_rejected(loads: Loads, path: Path) -> None:
    """A table that the load has created is dropped with it, unless rows are left to be loaded."""
    path.write_text("id,v\n1,a\n,b\n1,c\n")
    job = replace(target(path, create=True), mode="upsert", key=("id",), keep="last", types="infer")
    with pytest.raises(DataError, check=has_code("23502")):
        loads.run(job)
    outcome = loads.run(job, rules=LoadRules(retry_for=0.0, on_error="reject"))
    assert (outcome.rows, outcome.rejected) == (1, 1)
    assert loads.execute("SELECT id, v FROM t") == [(1, "c")]


@pytest.mark.parametrize(("key", "skip"), [(("ID",), ()), (("id", "id"), ()), (("nope",), ()), (("id",), ("id",))])
def test_key_that_the_created_table_lacks_is_refused(
    loads: Loads, path: Path, key: tuple[str, ...], skip: tuple[str, ...]
) -> None:
    """Before anything is created."""
    path.write_text("ID,v\n1,a\n")
    with pytest.raises((TargetError, UsageError), match="--key"):
        loads.run(replace(target(path, create=True, skip=skip), mode="upsert", key=key))
    assert not loads.has_table("t")


def test_killed_upsert_into_a_created_table_is_resumed(loads: Loads, path: Path) -> None:
    """The table stays, with its key, and the load is the same although the table exists now."""
    path.write_text("id,v\n" + "".join(f"{number},x\n" for number in range(2000)))
    job = replace(target(path, create=True), mode="upsert", key=("id",))

    def die(number: int) -> None:
        if number == 8:
            while not loads.execute("SELECT FROM penstock.ranges"):
                time.sleep(0.01)
            raise Killed

    doomed = Loads(loads.conninfo, piece_bytes=501)
    doomed.at_piece = die
    with pytest.raises(Killed):
        doomed.run(job, batch_bytes=1)
    assert loads.count() == 0
    outcome = loads.run(job)
    assert outcome.rows == 2000
    assert loads.execute("SELECT count(*) FROM penstock.loads") == [(1,)]


@pytest.mark.part("rest")
@pytest.mark.parametrize("mode", ["append", "truncate", "replace"])
def test_key_is_the_primary_key_of_a_created_table_in_modes_without_merge(
    loads: Loads, tmp_path: Path, mode: Mode
) -> None:
    """The same command loads the next file, and a row with a key that the table has is refused."""
    names = ("1.csv", "2.csv", "3.csv")
    for name, text in zip(names, ("id,v\n1,a\n", "id,v\n2,b\n", "id,v\n3,c\n3,d\n"), strict=True):
        (tmp_path / name).write_text(text)
        job = replace(target(tmp_path / name, create=True), mode=mode, key=("id",), types="infer")
        if name == "3.csv":
            with pytest.raises(DataError, match="unique"):
                loads.run(job)
        else:
            loads.run(job)
    keys = "SELECT pg_get_constraintdef(oid) FROM pg_constraint WHERE conrelid = 't'::regclass AND contype = 'p'"
    assert loads.execute(keys) == [("PRIMARY KEY (id)",)]


@pytest.mark.parametrize("key", [("nope",), ("id", "id")])
def test_key_of_an_append_that_the_created_table_lacks_is_refused(
    loads: Loads, path: Path, key: tuple[str, ...]
) -> None:
    """Before anything is created; and without --create there is no table to give it to."""
    path.write_text("id,v\n1,a\n")
    with pytest.raises((TargetError, UsageError), match="--key"):
        loads.run(replace(target(path, create=True), key=key))
    assert not loads.has_table("t")
    loads.execute("CREATE TABLE t (id int, v text)")
    with pytest.raises(UsageError, match="--key"):
        loads.run(replace(target(path), key=("id",)))


def test_created_key_holds_for_other_formats(loads: Loads, path: Path) -> None:
    """JSON Lines, and values of --set; concurrent loads create the table once."""
    path.write_text('{"id": 1, "v": "a"}\n{"v": "b", "id": 2}\n')
    job = replace(
        target(path, create=True, constants={"source": "x"}), mode="insert-new", key=("source", "id"), types="infer"
    )
    with ThreadPoolExecutor(3) as pool:
        done = list(pool.map(lambda _: loads.run(job).rows, range(3)))
    assert sum(done) == 2
    assert loads.execute("SELECT * FROM t ORDER BY id") == [(1, "a", "x"), (2, "b", "x")]
