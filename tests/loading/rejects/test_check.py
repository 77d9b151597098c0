"""--check: every bad record is found at its line in the file, and nothing is loaded or left."""

from __future__ import annotations

import contextlib
import gzip
import os
import threading
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from penstock.core.connect.connection import ConnectionFactory
from penstock.core.errors import PenstockError, ServerError, TargetError
from penstock.core.values.job import LoadJob
from penstock.loading.loader import Loader
from support.codes import has_code
from support.files import write_to
from support.loads import Loads, target
from support.pairs import pairs

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.loading.values.outcome import BadRecord, CheckOutcome, LoadProgress

Found = list[tuple[int | None, str | None, str | None]]


@pytest.fixture
def loads(database: str) -> Loads:
    """Provide checks in tiny blocks against a table with types, NOT NULL and CHECK, on each version in turn."""
    return Loads(
        database,
        piece_bytes=503,
        setup="CREATE TABLE t (a int NOT NULL, b varchar(30), c date CHECK (c > '2000-01-01'))",
    )


# What may be wrong with a record, and what the server says of it: SQLSTATE and column.
BAD = {
    "bad,x,2024-01-01": ("22P02", "a"),
    ",x,2024-01-01": ("23502", "a"),
    f"1,{'y' * 31},2024-01-01": ("22001", "b"),
    "1,x,2024-13-01": ("22008", "c"),
    "1,x,1999-01-01": ("23514", None),
    "1,x": ("22P04", None),
    "1,x,2024-01-01,z": ("22P04", None),
}


def write_file(path: Path, *, line_end: str, delimiter: str = ",", good: str) -> Found:
    """Write a file with each kind of bad record among good ones; return where they are and what they are."""
    # A first record of one line, which shows that a carriage return alone ends lines.
    lines = [delimiter.join(("1", "x", "2024-01-01"))] if line_end == "\r" else []
    found: Found = []
    for number, (bad, (sqlstate, column)) in enumerate(BAD.items()):
        lines += good.replace("\n", line_end).split(line_end) * (7 + 30 * number)
        lines.append(bad.replace(",", delimiter))
        found.append((len(lines), sqlstate, column))
    lines += good.replace("\n", line_end).split(line_end)
    path.write_bytes((line_end.join(lines) + line_end).encode())
    return found


def problems(outcome: CheckOutcome) -> Found:
    """Return line, SQLSTATE and column of each problem."""
    return [(problem.line, problem.sqlstate, problem.column) for problem in outcome.problems]


def assert_nothing_left(loads: Loads) -> None:
    """Neither rows, nor temporary tables of sessions that are still there."""
    assert loads.count() == 0
    assert loads.lingering() == 0


@pytest.mark.parametrize("line_end", ["\n", "\r\n", "\r"], ids=["lf", "crlf", "cr"])
@pytest.mark.parametrize("sessions", [1, 3])
def test_every_bad_record_of_csv_is_found(loads: Loads, tmp_path: Path, line_end: str, sessions: int) -> None:
    """Behind records of several lines, whatever ends the lines."""
    path = tmp_path / "file"
    expected = write_file(path, line_end=line_end, good='1,"two\nlines",2024-01-01')
    outcome = loads.check(target(path, format="csv", has_header=False), sessions=sessions)
    assert problems(outcome) == expected
    assert_nothing_left(loads)


def test_every_bad_record_of_tsv_is_found(loads: Loads, tmp_path: Path) -> None:
    """Whose backslashes are doubled on the way to the server."""
    path = tmp_path / "file"
    expected = write_file(path, line_end="\n", delimiter="\t", good='1\t"b\\s\t2024-01-01')
    expected[1] = (expected[1][0], "22P02", "a")
    outcome = loads.check(target(path, format="tsv", has_header=False))
    assert problems(outcome) == expected
    assert_nothing_left(loads)


@pytest.mark.parametrize("line_end", ["\n", "\r\n"], ids=["lf", "crlf"])
def test_every_bad_record_of_a_rewritten_file_is_found(loads: Loads, tmp_path: Path, line_end: str) -> None:
    """A field left out and a constant added; the count of columns is judged before the server sees it."""
    loads.execute("ALTER TABLE t ADD d text")
    path = tmp_path / "file"
    expected = write_file(path, line_end=line_end, good='1,"two\nlines",2024-01-01')
    job = target(path, format="csv", has_header=False, columns=("a", "b", "c"), constants={"d": "x"})
    assert problems(loads.check(job)) == expected
    assert_nothing_left(loads)


def test_wrong_bytes_are_found_with_their_lines(loads: Loads, tmp_path: Path) -> None:
    """Not UTF-8, a NUL: one problem each, though the server refuses the whole of what it was sent."""
    path = tmp_path / "file"
    good = b"1,x,2024-01-01\n" * 100
    path.write_bytes(good + b"1,\xff,2024-01-01\n" + good + b"1,\x00,2024-01-01\n" + good)
    outcome = loads.check(target(path, format="csv", has_header=False, encoding="UTF8"))
    assert problems(outcome) == [(101, "22021", None), (202, "22021", None)]
    assert outcome.rows == 300 + 2


def test_object_that_cannot_be_read_on_is_one_problem(loads: Loads, tmp_path: Path) -> None:
    """Mixed line ends end an object; the next one is checked all the same."""
    first, second = tmp_path / "first", tmp_path / "second"
    first.write_bytes(b"1,x,2024-01-01\n" * 200 + b"1,x,2024-01-01\r\n")
    second.write_text("1,x,2024-01-01\nbad,x,2024-01-01\n")
    outcome = loads.check(target([first, second], format="csv", has_header=False))
    assert [problem.uri.rpartition("/")[2] for problem in outcome.problems] == ["first", "second"]
    assert "line 201" in outcome.problems[0].message


@pytest.mark.parametrize("damage", ["quote", "gzip"])
def test_records_before_the_end_of_an_object_that_cannot_be_read_on_are_checked(
    loads: Loads, tmp_path: Path, damage: str
) -> None:
    """All that were whole, the last block's too."""
    sound, path = tmp_path / "a", tmp_path / "b"
    sound.write_bytes(b"1,x,2024-01-01\n")
    data = b"1,x,2024-01-01\n" * 100 + b"bad,x,2024-01-01\n"
    if damage == "quote":
        path.write_bytes(data + b'1,"x,2024-01-01\n')
    else:
        path.write_bytes(gzip.compress(data)[:-4])
    outcome = loads.check(target([sound, path], format="csv", has_header=False))
    assert problems(outcome)[1:] == [(101, "22P02", "a")]
    assert outcome.problem_count == 2


def test_sound_file_has_no_problem(loads: Loads, tmp_path: Path) -> None:
    """All its records are counted and none is loaded."""
    loads.execute("CREATE TABLE s (id serial, a int)")
    path = write_to(tmp_path / "file", "a\n" + "".join(f"{n}\n" for n in range(2000)))
    outcome = loads.check(target(path, into="s", format="csv", has_header=True), sessions=3)
    assert (outcome.rows, outcome.problems, loads.count("s")) == (2000, (), 0)


def test_table_that_create_would_make_is_not_made(loads: Loads, tmp_path: Path) -> None:
    """It is checked as all text."""
    path = write_to(tmp_path / "file", "a,b\n1,x\n2\n")
    outcome = loads.check(target(path, into="made.new", create=True, format="csv", has_header=True))
    assert [problem.line for problem in outcome.problems] == [3]
    assert not loads.has_table("made.new")


def test_tables_of_one_name_in_two_schemas_are_kept_apart(loads: Loads, tmp_path: Path) -> None:
    """Each is checked with its own columns."""
    first, second = tmp_path / "first", tmp_path / "second"
    first.write_text("a,b\n1,x\n2\n")
    second.write_text("c\n1\n2\n3,y\n")
    outcome = loads.check(
        target(first, into="one.new", create=True, format="csv", has_header=True),
        target(second, into="two.new", create=True, format="csv", has_header=True),
        sessions=1,
    )
    assert [(problem.uri.rpartition("/")[2], problem.line) for problem in outcome.problems] == [
        ("first", 3),
        ("second", 4),
    ]


# ---------------------------------------------------------------- what the server makes up


def test_columns_that_the_server_fills_are_no_problem(loads: Loads, tmp_path: Path) -> None:
    """Identity, default and what is generated from them; the file's own columns are checked all the same."""
    loads.execute(
        "CREATE TABLE s (id bigint GENERATED BY DEFAULT AS IDENTITY, a int NOT NULL CHECK (a > 0),"
        " kind text NOT NULL DEFAULT 'x' CHECK (kind IS NOT NULL),"
        " twice int NOT NULL GENERATED ALWAYS AS (2 * length(kind)) STORED)"
    )
    path = write_to(tmp_path / "file", 'a\n1\n""\n-1\n')
    outcome = loads.check(target(path, into="s", format="csv", has_header=True, nulls=("",)))
    assert [(problem.line, problem.sqlstate) for problem in outcome.problems] == [(3, "22P02"), (4, "23514")]
    path.write_text("id,a,kind\n1,1,x\n,1,x\n3,1,\n4,,x\n")
    outcome = loads.check(target(path, into="s", format="csv", has_header=True))
    assert problems(outcome) == [(3, "23502", "id"), (4, "23502", "kind"), (5, "23502", "a")]


def test_sequence_of_a_serial_is_not_moved(loads: Loads, user_conninfo: str, user_name: str, tmp_path: Path) -> None:
    """A check says the same as a load of a role without USAGE on it."""
    loads.execute(f'CREATE TABLE s (id serial, a int); GRANT SELECT, INSERT ON s TO "{user_name}"')
    job = target(write_to(tmp_path / "file", "a\n1\n2\nx\n"), into="public.s", format="csv", has_header=True)
    with pytest.raises(TargetError, check=has_code("42501")):
        Loads(user_conninfo).check(job)
    loads.execute(f'GRANT USAGE ON SEQUENCE s_id_seq TO "{user_name}"')
    assert problems(Loads(user_conninfo).check(job)) == [(4, "22P02", "a")]
    assert loads.execute("SELECT is_called FROM s_id_seq") == [(False,)]


def test_role_that_may_not_read_the_table_is_told_what_a_check_needs(
    loads: Loads, user_conninfo: str, user_name: str, tmp_path: Path
) -> None:
    """INSERT is enough for a load."""
    loads.execute(f'CREATE TABLE s (a int); GRANT INSERT ON s TO "{user_name}"')
    path = write_to(tmp_path / "file", "a\n1\n")
    with pytest.raises(TargetError, check=has_code("42501")) as caught:
        Loads(user_conninfo).check(target(path, into="public.s", format="csv", has_header=True))
    assert caught.value.hint == "Have the role granted SELECT on the table, and TEMPORARY on the database."


# ---------------------------------------------------------------- how problems are reported


def test_problem_names_the_target(loads: Loads, tmp_path: Path) -> None:
    """And not the temporary table that the record was tried on."""
    path = write_to(tmp_path / "file", "1,x,1999-01-01\n,x,2024-01-01\n")
    outcome = loads.check(target(path, format="csv", has_header=False))
    assert len(outcome.problems) == 2
    assert all('relation "t"' in problem.message for problem in outcome.problems)


@pairs(
    is_rewritten={"untouched": False, "rewritten": True},
    bad={"check": '1,"x\ny\nz",1999-01-01', "fields": '1,x,2024-01-01,"y\nz"', "value": '1,x,"1999-01\n-01"'},
    end={"unended": "", "last": "\n", "followed": "\n1,x,2024-01-01\n"},
)
def test_check_and_load_name_the_same_line(
    loads: Loads, tmp_path: Path, bad: str, end: str, *, is_rewritten: bool
) -> None:
    """The last one of a record of several lines, as COPY does."""
    if is_rewritten:
        loads.execute("ALTER TABLE t ADD d text")
    path = write_to(tmp_path / "file", '1,"two\nlines",2024-01-01\n' * 3 + bad + end)
    job = target(
        path,
        format="csv",
        has_header=False,
        columns=("a", "b", "c"),
        constants={"d": "x"} if is_rewritten else {},
    )
    (problem,) = loads.check(job, sessions=1).problems
    assert f" line {problem.line}" in (loads.refuse(job, sessions=1).detail or "")


def test_error_that_a_constraint_raises_is_a_problem_of_its_record(loads: Loads, tmp_path: Path) -> None:
    """As a function of a CHECK says it."""
    loads.execute(
        "CREATE FUNCTION judge(n int) RETURNS bool LANGUAGE plpgsql AS $$ BEGIN"
        " IF n = 13 THEN RAISE 'thirteen'; END IF;"
        " RETURN true; END $$; CREATE TABLE s (a int CHECK (judge(a)))"
    )
    path = write_to(tmp_path / "file", "".join(f"{n}\n" for n in range(1, 20)))
    outcome = loads.check(target(path, into="s", format="csv", has_header=False))
    assert problems(outcome) == [(13, "P0001", None)]
    assert [problem.message for problem in outcome.problems] == ["thirteen"]


# ---------------------------------------------------------------- how a check ends early


def test_failure_of_the_server_ends_the_check(loads: Loads, tmp_path: Path) -> None:
    """As an error that names the object and the SQLSTATE."""
    loads.execute(
        "CREATE FUNCTION judge(n int) RETURNS bool LANGUAGE plpgsql AS"
        " $$ BEGIN RAISE 'no space' USING ERRCODE = 'disk_full'; END $$; CREATE TABLE s (a int CHECK (judge(a)))"
    )
    path = write_to(tmp_path / "file", "1\n2\n")
    with pytest.raises(ServerError, match="no space") as caught:
        loads.check(target(path, into="s", format="csv", has_header=False))
    assert str(path) in (caught.value.detail or "")
    assert caught.value.sqlstate == "53100"
    assert_nothing_left(loads)


@pytest.mark.parametrize("sessions", [1, 3])
def test_ended_session_ends_the_check(loads: Loads, tmp_path: Path, sessions: int) -> None:
    """As an error of penstock's, between two blocks or within one."""
    path = write_to(tmp_path / "file", "1,x,2024-01-01\n" * 20_000)

    def end_sessions(piece: int) -> None:
        if piece == 100:
            loads.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database()"
                " AND application_name LIKE 'penstock%' AND pid <> pg_backend_pid()"
            )

    loads.at_piece = end_sessions
    with pytest.raises(PenstockError) as caught:
        loads.check(target(path, format="csv", has_header=False), sessions=sessions)
    assert isinstance(caught.value, ServerError)
    assert_nothing_left(loads)


@pytest.mark.parametrize("sessions", [1, 3])
def test_check_stops_behind_too_many_problems(loads: Loads, tmp_path: Path, sessions: int) -> None:
    """It says how many it found and that it stopped; a file with just as many as the limit is read to its end."""
    loads.tune(most_problems=20)
    path = write_to(tmp_path / "file", "bad,x,2024-01-01\n" * 20_000)
    outcome = loads.check(target(path, format="csv", has_header=False), sessions=sessions)
    assert len(outcome.problems) == 20
    assert 20 < outcome.problem_count <= 20 + sessions
    assert not outcome.is_complete
    assert outcome.rows < 20_000
    path.write_text("bad,x,2024-01-01\n" * 20 + "1,x,2024-01-01\n" * 100)
    outcome = loads.check(target(path, format="csv", has_header=False), sessions=sessions)
    assert (outcome.rows, outcome.problem_count, outcome.is_complete) == (120, 20, True)


def test_interrupted_check_of_a_pipe_reports_no_problem(loads: Loads, tmp_path: Path) -> None:
    """That its reading was stopped is the user's wish."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    is_over = threading.Event()

    def write() -> None:
        # The reader may go while this still writes.
        with contextlib.suppress(BrokenPipeError), pipe.open("wb") as end:
            end.write(b"1,x,2024-01-01\n" * 100_000)
            end.flush()
            is_over.wait()

    def interrupt(progress: LoadProgress) -> None:
        if progress.rows:
            raise KeyboardInterrupt

    found: list[BadRecord] = []
    writer = threading.Thread(target=write, daemon=True)
    writer.start()
    try:
        with Loader(ConnectionFactory(loads.conninfo)) as loader:
            plan = loader.plan(LoadJob(targets=(target(pipe, format="csv", has_header=False),), sessions=2))
            with pytest.raises(KeyboardInterrupt):
                loader.check(plan, on_problem=found.append, on_progress=interrupt)
    finally:
        is_over.set()
        writer.join()
    assert found == []
    assert_nothing_left(loads)


@pytest.mark.parametrize("way", ["check", "staging"])
def test_hint_of_an_event_trigger_stays(database: str, tmp_path: Path, way: str) -> None:
    """The trigger raises SQLSTATE 42501 and says what to do; penstock's own hint would ask for a GRANT."""
    loads = Loads(database, setup="CREATE TABLE t (a int PRIMARY KEY, b text)")
    path = write_to(tmp_path / "numbers.csv", "a,b\n1,x\n")
    loads.run(target(path))
    loads.execute(
        "CREATE FUNCTION refuse() RETURNS event_trigger LANGUAGE plpgsql AS"
        " $$ BEGIN RAISE insufficient_privilege USING HINT = 'Ask Ann.'; END $$"
    )
    loads.execute(
        "CREATE EVENT TRIGGER no_tables ON ddl_command_start WHEN TAG IN ('CREATE TABLE') EXECUTE FUNCTION refuse()"
    )
    other = write_to(tmp_path / "more.csv", "a,b\n2,y\n")
    with pytest.raises(TargetError) as caught:
        if way == "check":
            loads.check(target(other))
        else:
            loads.run(replace(target(other), mode="upsert", key=("a",)))
    assert "Ask Ann." in (caught.value.hint or "")
    assert "grant" not in (caught.value.hint or "")
