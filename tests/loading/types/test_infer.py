"""Loads that create tables with the types that all values have."""

from __future__ import annotations

import gzip
import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from psycopg.conninfo import make_conninfo

from penstock.core.errors import DataError, PenstockError, SourceError, TargetError, UsageError
from penstock.core.values.dialect import DialectOptions
from penstock.core.values.job import LoadRules
from penstock.core.values.names import parse_table_name
from support.loads import AGAIN, Loads
from support.modes import Killed
from support.typed import make_target, types_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

Write = Any


def _plan(loads: Loads, *targets: Any) -> Any:
    from penstock.core.values.job import LoadJob

    with loads.loader() as loader:
        return loader.plan(LoadJob(targets=targets))


def test_each_type_is_found_and_loaded(loads: Loads, write: Write) -> None:
    """A column of each type gets it; the values are what the server reads."""
    values = {
        "boolean": ["true", "f", "TRUE"],
        "integer": ["1", "-5", ""],
        "bigint": ["1", "3000000000", "-9223372036854775808"],
        "numeric": ["1.50", "9223372036854775808", ".5"],
        "double precision": ["1e5", "0.1", "NaN"],
        "date": ["2024-02-29", "0001-01-01", "9999-12-31"],
        "timestamp without time zone": ["2024-02-29 10:00", "2024-02-29T23:59:59.123456", "2024-01-01"],
        "timestamp with time zone": ["2024-02-29T10:00:00Z", "2024-02-29 10:00:00+02", "2024-02-29 10:00:00 -0330"],
        "uuid": ["6F9619FF-8B86-D011-B42D-00CF4FC964FF", "6f9619ff-8b86-d011-b42d-00cf4fc964ff", ""],
        "jsonb": ['"{""a"": [1, null]}"', "[]", ""],
        "text": ["007", "1", "2"],
    }
    header = ",".join(f"c{number}" for number in range(len(values)))
    records = [",".join(each) for each in zip(*values.values(), strict=True)]
    loads.run(make_target(write("\n".join([header, *records]) + "\n")))
    assert types_of(loads) == list(values)
    row = loads.execute("SELECT c0, c1, c2, c3::text, c4, c6::text, c9, c10 FROM t WHERE c1 = 1")
    assert row == [(True, 1, 1, "1.50", 1e5, "2024-02-29 10:00:00", {"a": [1, None]}, "007")]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (["1", "+7"], "text"),
        (["1", "1e5", "9007199254740993"], "text"),
        (["2024-02-30"], "text"),
        (["2024-02-29 10:00:00", "2024-02-29 10:00:00Z"], "text"),
        (["2024-02-29 24:00:00"], "text"),
        (['"{""a"": 1, ""\\u0061"": 2}"'], "text"),
        (['"[""\\u0000""]"'], "text"),
        (["t", "1"], "text"),
        (['""', "1"], "text"),
        (["1", "", ""], "integer"),
        (['"1"', '"2"'], "integer"),
        (["", ""], "text"),
    ],
)
def test_one_value_decides(loads: Loads, write: Write, values: list[str], expected: str) -> None:
    """A value that a type does not take, or that it would change, costs the type."""
    loads.run(make_target(write("\n".join(["id,c", *(f"0,{value}" for value in values)]) + "\n")))
    assert types_of(loads) == ["integer", expected]


def test_value_at_the_end_of_a_large_file_decides(loads: Loads, write: Write) -> None:
    """No sample is taken: the last of 400,000 records counts, and the plan names its line."""
    path = write("a,b\n" + "1,2\n" * 400_000 + "1,x\n")
    (target,) = _plan(loads, make_target(path)).targets
    assert target.create_types == ("integer", "text")
    decided = target.typed[1].decided_by
    assert (decided.uri, decided.line, decided.value) == (str(path), 400_002, "x")
    assert loads.run(make_target(path)).rows == 400_001


def test_files_that_disagree_are_intersected(loads: Loads, tmp_path: Path, write: Write) -> None:
    """Of several files, one compressed and one with its columns in another order, each column has one type."""
    write("a,b,c\n1,2024-01-01,1\n", "1.csv")
    write("c,a,b\nx,2.5,2024-01-02 10:00:00\n", "2.csv")
    (tmp_path / "3.csv.gz").write_bytes(gzip.compress(b"a,b,c\n3,,1\n"))
    target = make_target(tmp_path)
    typed = {column.name: column for column in _plan(loads, target).targets[0].typed}
    assert str(typed["a"].decided_by) == f'{tmp_path / "2.csv"} line 2: "2.5"'
    assert loads.run(target).rows == 3
    assert types_of(loads) == ["numeric", "timestamp without time zone", "text"]


@pytest.mark.parametrize("piece_bytes", [7, 64, 4096])
def test_the_witness_does_not_depend_on_blocks(database18: str, write: Write, piece_bytes: int) -> None:
    """However the file is cut, and whichever block is looked at first, the first value in the file decides."""
    records = [f"{number},{'2024-01-01' if number < 100 else 'x' * number}" for number in range(300)]
    loads = Loads(database18, piece_bytes=piece_bytes)
    (target,) = _plan(loads, make_target(write("\n".join(["a,b", *records]) + "\n"))).targets
    assert [(column.type_name, column.decided_by.line) for column in target.typed] == [("integer", 2), ("text", 102)]
    assert target.typed[1].decided_by.value == "x" * 60


def test_nothing_but_a_header_makes_text(loads: Loads, write: Write) -> None:
    """A header alone names columns without values; an empty file beside one with records changes nothing."""
    loads.run(make_target(write("a,b\n"), dialect=DialectOptions(header=True)))
    assert types_of(loads) == ["text", "text"]
    loads.run(make_target(write("", "1.csv"), write("a\n7\n", "2.csv"), into="u"))
    assert types_of(loads, "u") == ["integer"]


def test_empty_file_creates_no_table(loads: Loads, write: Write) -> None:
    """As without types."""
    loads.run(make_target(write("")))
    assert not loads.has_table("t")


def test_options_of_the_dialect_decide_what_null_is(loads: Loads, write: Write) -> None:
    """Null words, quoted nulls and constants are not values of the file."""
    path = write('a;b;c\nNA;"NA";"NA"\n1;2;3\n')
    options = {"null": "NA", "force_null": "b", "delimiter": ";"}
    loads.run(make_target(path, dialect=DialectOptions(**options), set={"f": "{filename}"}, skip=["c"]))
    assert types_of(loads) == ["integer", "integer", "text"]
    loads.run(make_target(path, into="u", dialect=DialectOptions(**options)))
    assert types_of(loads, "u") == ["integer", "integer", "text"]


def test_records_that_are_rejected_do_not_count(loads: Loads, write: Write) -> None:
    """A record with a field too many, whose values stand in the wrong columns, leaves the types alone."""
    outcome = loads.run(make_target(write("a,b\n1,2\nx,y,z\n3,4\n")), rules=LoadRules(on_error="reject", retry_for=0))
    assert types_of(loads) == ["integer", "integer"]
    assert (outcome.rows, outcome.rejected) == (2, 1)


def test_unclear_dates_stay_text_with_a_warning(loads: Loads, write: Write) -> None:
    """01/02/2026 could be either; one value that is no such date is no warning."""
    loads.run(make_target(write("a,b\n01/02/2026,01/02/2026\n12/02/2026,x\n")))
    assert types_of(loads) == ["text", "text"]
    assert [(notice.code, notice.line) for notice in loads.warnings] == [("unclear-date", 2)]
    hint = "Use --date-order a=dmy or --date-order a=mdy; with --mode replace if this load has created the table."
    assert loads.warnings[0].hint == hint


def test_words_for_null_that_make_columns_text_are_warned_of(loads: Loads, write: Write) -> None:
    """Once for each word; what would be text anyway has none."""
    path = write("a,b,c,d\n1,NA,x,1\nNA,2.5,NA,\n2,3,y,?\n,1,,2\n")
    loads.run(make_target(path))
    assert types_of(loads) == ["text"] * 4
    assert [(notice.code, notice.line, notice.message) for notice in loads.warnings] == [
        ("literal-null", 3, 'NA is text in this dialect, and so are columns "a", "b" of table "t"'),
        ("literal-null", 4, '? is text in this dialect, and so is column "d" of table "t"'),
    ]
    options = DialectOptions(null=("NA", "?", ""))
    loads.run(make_target(path, into="u", dialect=options))
    assert types_of(loads, "u") == ["integer", "numeric", "text", "integer"]
    assert loads.warnings == ()


@pytest.mark.parametrize(
    ("text", "null", "hint"),
    [('"a","b"\n"1","5"\n"2",""\n', None, "--force-null b if"), ("a,b\n1,5\n2,\n", ("NA",), "--null '' if")],
)
def test_empty_texts_that_make_columns_text_are_warned_of(
    loads: Loads, write: Write, text: str, null: tuple[str, ...] | None, hint: str
) -> None:
    """A program that quotes every field quotes those that it has no value for; another --null leaves them text."""
    loads.run(make_target(write(text), dialect=DialectOptions(null=null)))
    assert types_of(loads) == ["integer", "text"]
    (notice,) = loads.warnings
    assert notice.message == 'an empty text is text in this dialect, and so is column "b" of table "t"'
    assert f"Use {hint} it stands for null" in (notice.hint or "")


@pytest.mark.parametrize("end", ["\n", ""])
def test_last_line_that_makes_columns_text_is_warned_of(loads: Loads, write: Write, end: str) -> None:
    """It may be one of totals; a value in another line is none, nor is a code that begins with a digit."""
    path = write(f"a;b;c;d;e\n1;31.01.2026;1;x;1\n2;13.02.2026;n;y;2\nTotal;Total;2;Total;7a{end}")
    loads.run(make_target(path))
    assert types_of(loads) == ["text"] * 5
    assert [(each.code, each.line) for each in loads.warnings] == [("total-line", 4)] * 2
    assert '"a"' in loads.warnings[0].message
    assert '"b"' in loads.warnings[1].message


def test_days_with_slashes_are_dates_if_the_year_comes_first(loads: Loads, write: Write) -> None:
    """Their order does not depend on DateStyle."""
    path = write("a,b,c\n2014/09/07,2014/09/07 10:00,2014/09/07 10:00:00Z\n")
    loads.run(make_target(path))
    assert types_of(loads) == ["date", "timestamp without time zone", "timestamp with time zone"]
    assert loads.execute("SELECT a::text, b::text FROM t") == [("2014-09-07", "2014-09-07 10:00:00")]


def test_pipe_is_refused_unless_it_is_spooled(loads: Loads, tmp_path: Path) -> None:
    """A pipe cannot be read before the load, and again by it."""
    os.mkfifo(tmp_path / "p")
    script = "import sys; open(sys.argv[1], 'w').write('a\\n1\\n')"
    writer = subprocess.Popen([sys.executable, "-c", script, str(tmp_path / "p")])
    try:
        assert isinstance(loads.refuse(make_target(tmp_path / "p")), SourceError)
    finally:
        writer.kill()
        writer.wait()
    assert not loads.has_table("t")


def test_what_has_no_types_to_find_is_refused(loads: Loads, write: Write) -> None:
    """Columnar files have types, a transform reads text, and infer creates."""
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    path = write("a\n1\n")
    parquet = path.with_name("f.parquet")
    pq.write_table(pa.table({"a": [1]}), parquet)
    assert isinstance(loads.refuse(make_target(parquet)), UsageError)
    loads.execute("CREATE TABLE t (a int)")
    assert isinstance(loads.refuse(make_target(path, create=False)), UsageError)
    transform = {"name": "x.sql", "text": "INSERT INTO t SELECT a::int FROM :staging"}
    assert isinstance(loads.refuse(make_target(path, transform=transform)), UsageError)


def test_check_reads_a_new_table_with_its_types(loads: Loads, write: Write) -> None:
    """--check finds types too, and creates nothing."""
    outcome = loads.check(make_target(write("a,b\n1,x\n")))
    assert (outcome.rows, outcome.problems) == (1, ())
    assert not loads.has_table("t")


def test_json_stays_text_if_the_database_is_not_utf8(loads: Loads, write: Write) -> None:
    """Escapes in jsonb need characters that such a database may not have."""
    loads.execute("CREATE DATABASE latin TEMPLATE template0 ENCODING 'LATIN1' LOCALE 'C'")
    loads = Loads(make_conninfo(loads.conninfo, dbname="latin"))
    loads.run(make_target(write('a,b\n"[""\\u20ac""]",1\n')))
    assert types_of(loads) == ["text", "integer"]


def test_two_sources_of_one_table_have_one_type(loads: Loads, write: Write) -> None:
    """Two targets of a job that create the same table agree on its types."""
    one, two = write("a\n1\n", "1.csv"), write("a\n2.5\n", "2.csv")
    loads.run(make_target(one), make_target(two))
    assert types_of(loads) == ["numeric"]
    assert loads.count() == 2


def test_later_value_that_does_not_fit_names_the_statement(loads: Loads, write: Write) -> None:
    """The error of a later file has its value, and the ALTER TABLE that would take it, which then does."""
    loads.run(make_target(write("a,b\n1,2024-01-01\n", "1.csv")))
    for text, kind in [
        ("a,b\n3000000000,2024-01-01\n", "bigint"),
        ("a,b\n1.5,2024-01-01\n", "numeric"),
        ("a,b\n1,2024-01-01 10:00:00\nx,\n", "text"),
    ]:
        path = write(text, "2.csv")
        with pytest.raises(DataError) as caught:
            loads.run(make_target(path))
        assert caught.value.location is not None
        assert caught.value.location.file == str(path)
        statement = (caught.value.hint or "").partition("run: ")[2].partition(";")[0]
        assert statement == f'ALTER TABLE "public"."t" ALTER COLUMN "a" TYPE {kind}'
        loads.execute(statement)
    loads.run(make_target(path))


_PROGRAM = """
import os, signal, sys
from penstock.api import functions
from penstock.loading import run
from penstock.core.values.job import LoadRules
def die(*args, **kwargs):
    os.kill(os.getpid(), signal.SIGKILL)
run.claim_load = die
functions.load(sys.argv[1], "t", to=sys.argv[2], create=True, types="infer", header=True, no_record=True)
"""


def test_killed_between_scan_and_load_scans_again(loads: Loads, write: Write) -> None:
    """Nothing is created before the load is written down; a file that has changed in between gets its own types."""
    path = write("a\n1\n")
    argv = [sys.executable, "-c", _PROGRAM, str(path), loads.conninfo]
    assert subprocess.run(argv, check=False, env=os.environ | {"PYTHONPATH": "src"}).returncode == -signal.SIGKILL
    assert not loads.has_table("t")
    write("a\nx\n")
    loads.run(make_target(path, dialect=DialectOptions(header=True)))
    assert types_of(loads) == ["text"]


def test_file_that_changes_after_the_scan_is_an_error(loads: Loads, write: Write) -> None:
    """The load reads the version that was looked at, and nothing stays if that has changed."""
    from penstock.core.values.job import LoadJob

    path = write("a\n1\n")
    with loads.loader() as loader:
        plan = loader.plan(LoadJob(targets=(make_target(path),), rules=LoadRules(retry_for=0)))
        path.unlink()
        write("a\nsomething else\n")
        with pytest.raises(SourceError):
            loader.run(plan)
    assert not loads.has_table("t") or loads.count() == 0


def test_names_need_no_care(loads: Loads, write: Write) -> None:
    """Names of tables and columns are quoted in the statements and in the plan."""
    from penstock.loading.views.plan import describe_creation

    path = write('"a""b",select\n1,x\n')
    job = make_target(path, into='"T; x"')
    (target,) = _plan(loads, job).targets
    statement = "\n".join(describe_creation(target))
    loads.execute(statement)
    assert types_of(loads, '"T; x"') == ["integer", "text"]
    assert parse_table_name('"T; x"') == target.table


def test_values_in_the_plan_cannot_end_its_comments(loads: Loads, write: Callable[..., Path]) -> None:
    """A line end in a value, or a terminal's escape, is shown as an escape."""
    from penstock.loading.views.plan import describe_creation

    (target,) = _plan(loads, make_target(write('a,b\n"x\n); DROP TABLE u; --\x1b",1\n'))).targets
    loads.execute("CREATE TABLE u ()")
    loads.execute("\n".join(describe_creation(target)))
    assert loads.has_table("u")
    assert "\x1b" not in "".join(describe_creation(target))


REPLACING: dict[str, Any] = {"mode": "replace"}


def test_replaced_table_takes_the_types_of_its_files(loads: Loads, write: Write) -> None:
    """Everything else of the table stays: indexes, keys, comments, privileges, types that penstock does not choose."""
    path = write("id,n,day,word,code,empty\n1,NA,2026-01-01,a,x,\n2,2.5,2026-01-02,b,y,\n")
    loads.run(make_target(path))
    assert types_of(loads) == ["integer", "text", "date", "text", "text", "text"]
    loads.execute(
        "ALTER TABLE t ADD PRIMARY KEY (id), ALTER code TYPE varchar(5), DROP COLUMN word, ALTER day TYPE text,"
        " ADD word text DEFAULT 'w' NOT NULL; CREATE INDEX ON t (n, day); COMMENT ON COLUMN t.n IS 'c';"
        "GRANT SELECT ON t TO PUBLIC"
    )
    dialect = DialectOptions(null=("", "NA"))
    assert loads.run(make_target(path, dialect=dialect, **REPLACING)).rows == 2
    columns = "SELECT string_agg(attname || ' ' || format_type(atttypid, atttypmod), ', ' ORDER BY attnum)"
    assert loads.execute(
        f"{columns} FROM pg_attribute WHERE attrelid = 't'::regclass AND attnum > 0 AND NOT attisdropped"
    ) == [("id integer, n numeric, day date, code character varying(5), empty text, word text",)]
    assert loads.execute("SELECT id, n::text, word FROM t ORDER BY id") == [(1, None, "a"), (2, "2.5", "b")]
    assert loads.execute("SELECT col_description('t'::regclass, 2), has_table_privilege('public', 't', 'SELECT')") == [
        ("c", True)
    ]
    assert loads.indexes() == ["t_n_day_idx", "t_pkey"]
    assert loads.run(make_target(path, dialect=dialect, **REPLACING), rules=AGAIN).rows == 2


@pytest.mark.parametrize(
    "obstacle",
    [
        "CREATE INDEX ON t (lower(a))",
        "CREATE INDEX ON t (a text_pattern_ops)",
        "ALTER TABLE t ADD CHECK (a <> 'x')",
        "ALTER TABLE t ALTER a SET DEFAULT 'x'",
    ],
)
def test_types_that_a_table_does_not_allow_are_refused_first(loads: Loads, write: Write, obstacle: str) -> None:
    """Before a row is sent; the table stays as it is."""
    path = write("k,a\n7,NA\n8,1\n")
    loads.run(make_target(path))
    loads.execute(obstacle)
    with pytest.raises(PenstockError):
        loads.run(make_target(path, dialect=DialectOptions(null=("", "NA")), **REPLACING))
    assert types_of(loads) == ["integer", "text"]
    assert loads.rows() == [(7, "NA"), (8, "1")]
    assert loads.execute("SELECT count(*) FROM pg_class WHERE relname LIKE 'penstock\\_%'") == [(0,)]


@pytest.mark.parametrize("part", ["ADD CHECK (b >= 0)", "ADD CHECK (b <> 7), ADD CHECK (a <> 'x')"])
def test_types_that_would_change_a_check_are_refused_first(loads: Loads, write: Write, part: str) -> None:
    """PostgreSQL adds a cast to its expression, so that the new table would differ from the old one at the end."""
    loads.run(make_target(write("a,b\nz,1.5\n")))
    loads.execute(f"ALTER TABLE t {part}")
    with pytest.raises(TargetError, match=r'would change what table "public\.t" checks or indexes') as caught:
        loads.run(make_target(write("a,b\nz,2\n"), **REPLACING))
    assert "CHECK ((b" in str(caught.value.detail)
    assert loads.execute("SELECT a, b::text FROM t") == [("z", "1.5")]


def test_replacement_by_a_file_with_other_columns_names_the_statement_that_drops_the_table(
    loads: Loads, write: Write
) -> None:
    """A first load without --skip-lines or --header has created other columns."""
    loads.run(make_target(write("a,b\n1,2\n")))
    other = make_target(write("a,c\n1,2\n"), mode="replace")
    with pytest.raises(TargetError) as caught:
        loads.run(other)
    assert 'run: DROP TABLE "public"."t"; and load again' in (caught.value.hint or "")
    loads.execute("DROP TABLE t")
    loads.run(other)
    assert loads.execute("SELECT a, c FROM t") == [(1, 2)]


def test_replacing_without_types_or_create_keeps_the_types(loads: Loads, write: Write) -> None:
    """As before: types are taken only if they are asked for."""
    path = write("a\n1\n")
    loads.run(make_target(path))
    loads.execute("ALTER TABLE t ALTER a TYPE bigint")
    each: tuple[dict[str, Any], ...] = ({"types": "text"}, {"types": "widen"}, {"types": "text", "create": False})
    for options in each:
        loads.run(make_target(path, **REPLACING, **options))
        assert types_of(loads) == ["bigint"]


def test_killed_replacement_with_other_types_is_resumed(database18: str, write: Write) -> None:
    """The new table has the types already, and they are found again."""
    loads = Loads(database18, piece_bytes=501)
    path = write("a,b\nNA,x\n" + "".join(f"{number},x\n" for number in range(5000)))
    loads.run(make_target(path))
    job = make_target(path, dialect=DialectOptions(null=("", "NA")), **REPLACING)
    doomed = Loads(database18, piece_bytes=501)
    begun = 0

    def die(number: int) -> None:
        nonlocal begun
        # Every value is looked at first, from piece 0 on.
        begun += number == 0
        if number == 40 and begun > 1 and loads.execute("SELECT count(*) > 1 FROM penstock.ranges") == [(True,)]:
            raise Killed

    doomed.at_piece = die
    with pytest.raises(Killed):
        doomed.run(job, batch_bytes=1)
    assert types_of(loads) == ["text", "text"]
    assert loads.run(job).rows == 5001
    assert types_of(loads) == ["integer", "text"]


def test_replacement_with_other_types_rejects_records_and_takes_json(loads: Loads, write: Write) -> None:
    """The types of the new table decide what is refused, and how a JSON value is sent."""
    path = write('{"a": "x", "b": 1}\n', "1.jsonl")
    loads.run(make_target(path))
    assert types_of(loads) == ["text", "integer"]
    write('{"a": {"k": 1}, "b": "two"}\n{"a": [1], "b": null}\nno\n', "1.jsonl")
    outcome = loads.run(make_target(path, **REPLACING), rules=LoadRules(retry_for=0, on_error="reject", changed="load"))
    assert (outcome.rows, outcome.rejected) == (2, 1)
    assert types_of(loads) == ["jsonb", "text"]
    assert loads.execute("SELECT a, b FROM t ORDER BY b") == [({"k": 1}, "two"), ([1], None)]
