"""penstock loads and resume: what the ledger says, on the screen and as JSON, and going on from it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from penstock.api import ledger_view
from penstock.api.ledger_view import LedgerView
from penstock.core.errors import DataError, PenstockError, ServerError, TargetError
from penstock.core.values.job import LoadRules
from penstock.ledger.ledger import Ledger
from penstock.ledger.listing import list_loads
from penstock.loading.command.load import LoadCommand
from support.command import run_process
from support.files import write_to
from support.loads import Loads, target

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.core.connect.connection import Connection
    from penstock.core.values.job import LoadJob
    from penstock.ledger.values import LoadRecord
    from support.command import Finished

    Run = Callable[..., Finished]

ROWS = 2000


@pytest.fixture
def people(tmp_path: Path) -> str:
    """Provide a csv file of three records."""
    path = write_to(tmp_path / "people.csv", "id,name\n1,Ann\n2,Bob\n3,\n")
    return str(path)


@pytest.fixture
def cut_short(database18: str, tmp_path: Path) -> str:
    """Provide the id of a load that ended at a bad record after some batches; the file is corrected since."""
    loads = Loads(database18, piece_bytes=509, chunk_bytes=500, setup="CREATE TABLE t (a int, b text)")
    path = tmp_path / "numbers"
    good = "a,b\n" + "".join(f"{n},value {n}\n" for n in range(ROWS))
    path.write_text(good.replace("\n1500,", "\nxxxx,"))
    with pytest.raises(DataError):
        loads.run(target(path), batch_bytes=4000)
    path.write_text(good)
    return str(loads.execute("SELECT id::text FROM penstock.loads")[0][0])


def test_database_without_a_ledger_has_no_loads(penstock: Run, database18: str) -> None:
    """And none is made to say so."""
    assert penstock("loads", "--to", database18).out.startswith("no loads on PostgreSQL ")
    shown = penstock("loads", "--to", database18, "--json").object
    assert (shown["loads"], shown["missing"], shown["staging"], shown["has_more"]) == ([], [], [], False)
    with psycopg.connect(database18) as connection:
        assert connection.execute("SELECT to_regnamespace('penstock')").fetchone() == (None,)


def test_complete_load_is_listed_and_shown(penstock: Run, database18: str, people: str) -> None:
    """With its rows, its objects and nothing missing."""
    done = penstock("load", people, "--into", "public.people", "--create", "--to", database18, "--json").object
    _, head, line = penstock("loads", "--to", database18).out.splitlines()
    assert head.split() == ["id", "state", "began", "tables", "objects", "missing", "rows", "rejected", "MB/s", "by"]
    assert line.startswith(f"{done['load_id'][:8]}  complete  ")
    shown = penstock("loads", "show", done["load_id"][:6], "--to", database18).out
    assert f"load {done['load_id']}: complete" in shown
    assert people in shown
    assert penstock("loads", done["load_id"][:6], "--to", database18).out == shown
    found = penstock("loads", "show", done["load_id"], "--to", database18, "--json").object
    assert (found["rows"], found["files"][0]["uri"], found["files"][0]["is_complete"]) == (3, people, True)


def test_records_of_a_merge_that_failed_are_shown_as_staged(penstock: Run, database18: str, tmp_path: Path) -> None:
    """Also if the file has changed since; no row of the table is of this load."""
    Loads(database18).execute("CREATE TABLE t (a int PRIMARY KEY, b text)")
    path = tmp_path / "f.csv"
    path.write_text("a,b\n2,x\n2,y\n")
    command = ["load", str(path), "--into", "t", "--mode", "upsert", "--key", "a", "--to", database18]
    assert penstock(*command).code == 5
    (record,) = penstock("loads", "--to", database18, "--json").object["loads"]
    assert record["rows"] == 0
    shown = penstock("loads", "show", record["load_id"], "--to", database18).out
    assert "2 records staged, 0 rows" in shown
    assert "2 staged" in shown.splitlines()[-2]
    files = penstock("loads", "show", record["load_id"], "--to", database18, "--json").object["files"]
    assert [file["is_staged"] for file in files] == [True]
    path.write_text("a,b\n2,x\n3,y\n4,z\n")
    assert "2 records of it are staged" in penstock(*command).err


def test_second_run_says_that_nothing_is_left_to_load(penstock: Run, database18: str, people: str) -> None:
    """And how to load it again."""
    command = ["load", people, "--into", "public.people", "--create", "--to", database18]
    penstock(*command)
    lines = penstock(*command).out.splitlines()
    assert lines[0].startswith("nothing to load: 1 object already loaded on PostgreSQL ")
    assert lines[1:] == ["to load them again, also with other options: --again"]
    assert penstock(*command, "--again").out.startswith("loaded 3 rows")


def test_load_that_has_but_its_merge_left_tells_what_it_did(penstock: Run, database18: str, tmp_path: Path) -> None:
    """Its files had been read, and one of them loaded by another load: that is not all there was to do."""
    Loads(database18).execute("CREATE TABLE t (a int PRIMARY KEY, b text)")
    (tmp_path / "1").write_text("a,b\n1,x\n")
    (tmp_path / "2").write_text("a,b\n2,x\n2,y\n")
    options = ["--into", "t", "--mode", "upsert", "--key", "a", "--to", database18]
    assert penstock("load", str(tmp_path / "1"), *options).code == 0
    assert penstock("load", str(tmp_path), *options).code == 5
    done = penstock("load", str(tmp_path), *options, "--keep", "last")
    lines = done.out.splitlines()
    assert lines[0].startswith("loaded 1 row in ")
    assert lines[1:3] == [
        "skipped 1 object already loaded",
        "1 inserted, 1 skipped for another record with the same key",
    ]


def test_load_that_was_cut_short_is_resumed_by_its_id(penstock: Run, database18: str, cut_short: str) -> None:
    """From what the ledger knows of its job."""
    listed = penstock("loads", "--to", database18).out
    assert "cut short" in listed
    shown = penstock("loads", "show", cut_short, "--to", database18).out
    assert f"to resume it: penstock resume {cut_short}" in shown
    resumed = penstock("resume", cut_short[:8], "--to", database18, "--changed", "load")
    assert resumed.code == 0, resumed.err
    assert f"resumed load {cut_short}" in resumed.out
    with psycopg.connect(database18) as connection:
        assert connection.execute("SELECT count(*), count(DISTINCT a) FROM t").fetchone() == (ROWS, ROWS)


def test_latest_is_the_newest_load_that_was_cut_short(
    penstock: Run, database18: str, cut_short: str, people: str
) -> None:
    """A complete load that is newer is none; when it is complete too, none is left."""
    assert penstock("load", people, "--into", "people", "--create", "--to", database18).code == 0
    resumed = penstock("resume", "latest", "--to", database18, "--changed", "load")
    assert resumed.code == 0, resumed.err
    assert f"resumed load {cut_short}" in resumed.out
    refused = penstock("resume", "latest", "--to", database18)
    assert (refused.code, "no load can be resumed" in refused.err) == (6, True)


def test_connection_that_is_lost_before_a_load_is_resumed_is_waited_out(
    penstock: Run, database18: str, cut_short: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ledger is asked again, for as long as --retry-for says."""
    lost = []

    def lose(connection: Connection, schema: str, **given: Any) -> list[LoadRecord]:
        if len(lost) < 2:
            lost.append(connection)
            with psycopg.connect(database18, autocommit=True) as other:
                other.execute("SELECT pg_terminate_backend(%s)", [connection.info.backend_pid])
        return list_loads(connection, schema, **given)

    monkeypatch.setattr(ledger_view, "list_loads", lose)
    arguments = ("resume", cut_short, "--to", database18, "--changed", "load", "--retry-for")
    assert penstock(*arguments, "0").code == 7
    resumed = penstock(*arguments, "1min")
    assert resumed.code == 0, resumed.err
    assert len(lost) == 2


def test_load_is_not_resumed_by_other_settings(
    penstock: Run, database18: str, cut_short: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What differs is named: the same command would only be refused again."""
    monkeypatch.setenv("PGTZ", "Asia/Tokyo")
    refused = penstock("resume", cut_short, "--to", database18)
    assert refused.code == 6
    assert f"\nerror: cannot resume load {cut_short}: " in refused.err
    assert 'and is "Asia/Tokyo".' in refused.err
    assert f"penstock loads forget {cut_short}" in refused.err


def test_load_is_not_resumed_into_another_table_of_the_name(penstock: Run, database18: str, cut_short: str) -> None:
    """Its rows were in the old one."""
    with psycopg.connect(database18) as connection:
        connection.execute("DROP TABLE t; CREATE TABLE t (a int, b text)")
    refused = penstock("resume", cut_short, "--to", database18)
    assert refused.code == 6
    assert 'Table "public.t" is not the one that the load began with.' in refused.err


def test_resume_begins_no_other_load(
    penstock: Run, database18: str, people: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where another process completes the load meanwhile: one that loads --again would store all of it twice."""
    loads = Loads(database18, setup="CREATE TABLE people (id int, name text)")
    job, begin = LedgerView.job, Ledger.begin
    again = LoadRules(retry_for=0.0, again=True)

    def begin_and_fail(ledger: Ledger, *args: Any, **options: Any) -> object:
        begin(ledger, *args, **options)
        raise ServerError("the loader is gone")

    with monkeypatch.context() as patched:
        patched.setattr(Ledger, "begin", begin_and_fail)
        with pytest.raises(ServerError):
            loads.run(target(people, into="people"), rules=again)  # type: ignore[arg-type]
    ((load_id,),) = loads.execute("SELECT id::text FROM penstock.loads")

    def complete_and_read(view: LedgerView, load_id: str) -> LoadJob:
        found = job(view, load_id)
        loads.run(target(people, into="people"), rules=again)  # type: ignore[arg-type]
        return found

    monkeypatch.setattr(LedgerView, "job", complete_and_read)
    refused = penstock("resume", load_id, "--to", database18)
    assert (refused.code, refused.err.splitlines()[1]) == (6, f"error: load {load_id} is complete")
    assert loads.count("people") == 3


def test_resumed_load_is_as_patient_as_it_was(
    penstock: Run, database18: str, cut_short: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its options are those of the command that began it, unless others are given."""
    rules: list[LoadRules] = []
    monkeypatch.setattr(LoadCommand, "run", lambda _self, request, *_, **__: rules.append(request.job.rules))
    penstock("resume", cut_short, "--to", database18)
    penstock("resume", cut_short, "--to", database18, "--retry-for", "7s")
    penstock("resume", cut_short, "--to", database18, "--emptied", "skip", "--ignore-space")
    assert [each.retry_for for each in rules] == [0.0, 7.0, 0.0]
    assert [(each.emptied, each.ignore_space) for each in rules[1:]] == [("error", False), ("skip", True)]


def test_load_whose_table_was_emptied_is_resumed_for_what_is_missing_alone(
    penstock: Run, database18: str, cut_short: str
) -> None:
    """Once that has been said: the rows that were in the table do not come back."""
    with psycopg.connect(database18, autocommit=True) as connection:
        before = connection.execute("SELECT count(*) FROM t").fetchone()
        connection.execute("TRUNCATE t")
        refused = penstock("resume", cut_short, "--to", database18)
        assert refused.code == 6
        assert "--emptied skip" in refused.err
        resumed = penstock("resume", cut_short, "--to", database18, "--emptied", "skip", "--changed", "load")
        assert resumed.code == 0, resumed.err
        after = connection.execute("SELECT count(*) FROM t").fetchone()
    assert before is not None
    assert after is not None
    assert 0 < before[0] < ROWS
    assert after[0] == ROWS - before[0]


def test_complete_load_is_not_resumed(penstock: Run, database18: str, people: str) -> None:
    """There is nothing to resume."""
    done = penstock("load", people, "--into", "public.people", "--create", "--to", database18, "--json").object
    refused = penstock("resume", done["load_id"], "--to", database18)
    assert (refused.code, refused.err.splitlines()[0]) == (6, f"error: load {done['load_id']} is complete")


def test_forgotten_load_counts_as_not_loaded(penstock: Run, database18: str, people: str) -> None:
    """Its rows stay, which has to be said."""
    command = ["load", people, "--into", "public.people", "--create", "--to", database18, "--json"]
    done = penstock(*command).object
    forget = ["loads", "forget", done["load_id"], "--to", database18]
    refused = penstock(*forget)
    assert (refused.code, refused.err.splitlines()[0]) == (6, f"error: load {done['load_id']} has rows in its table")
    assert '3 in "public.people"' in refused.err
    forgotten = penstock(*forget, "--keep-rows")
    assert forgotten.code == 0
    assert '3 rows of it remain in "public.people"' in forgotten.err
    assert penstock(*command).object["rows"] == 3
    with psycopg.connect(database18) as connection:
        assert connection.execute("SELECT count(*) FROM people").fetchone() == (6,)


def test_load_whose_records_triggers_skipped_is_forgotten_only_with_its_rows(
    penstock: Run, database18: str, people: str
) -> None:
    """They may have stored them elsewhere, and the next load would store them again."""
    Loads(database18).execute(
        "CREATE TABLE people (id int, name text); CREATE TABLE child () INHERITS (people);"
        "CREATE FUNCTION route() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
        " INSERT INTO child VALUES (NEW.*); RETURN NULL; END $$;"
        "CREATE TRIGGER route BEFORE INSERT ON people FOR EACH ROW EXECUTE FUNCTION route()"
    )
    load_id = penstock("load", people, "--into", "people", "--to", database18, "--json").object["load_id"]
    refused = penstock("loads", "forget", load_id, "--to", database18)
    assert (refused.code, refused.err.splitlines()[0]) == (6, f"error: load {load_id} may have rows in its table")
    assert "row triggers skipped 3 records, and may have stored them elsewhere" in refused.err
    forgotten = penstock("loads", "forget", load_id, "--keep-rows", "--to", database18)
    assert '0 rows of it remain in "public.people"; row triggers skipped 3 records' in forgotten.err


def test_latest_is_the_newest_load_that_is_shown_or_forgotten(penstock: Run, database18: str, people: str) -> None:
    """Complete or not, as of verify and undo; one row is not told as rows."""
    write_to(Path(people), "name,age\nAnn,1\n")
    done = penstock("load", people, "--into", "public.people", "--create", "--to", database18, "--json").object
    for words in (["loads", "latest"], ["loads", "show", "latest"]):
        shown = penstock(*words, "--to", database18).out
        assert shown.startswith(f"load {done['load_id']}: complete")
        assert "  1 row, " in shown
    forgotten = penstock("loads", "forget", "latest", "--keep-rows", "--to", database18)
    assert f"forgot load {done['load_id']}" in forgotten.err
    assert '1 row of it remains in "public.people"' in forgotten.err


@pytest.mark.parametrize("empty", ["DROP TABLE people", "a load"])
def test_load_whose_rows_are_known_to_be_gone_is_forgotten(
    penstock: Run, database18: str, people: str, empty: str
) -> None:
    """With their table, or truncated by a later load."""
    command = ["load", people, "--into", "public.people", "--create", "--to", database18, "--json"]
    done = penstock(*command).object
    if empty == "a load":
        assert penstock(*command, "--mode", "truncate").code == 0
    else:
        Loads(database18).execute(empty)
    assert penstock("loads", "forget", done["load_id"], "--to", database18).code == 0


def test_load_with_rejected_records_is_forgotten_once_they_are_discarded(penstock: Run, database18: str) -> None:
    """Of a pipe, the ledger has the only copy."""
    Loads(database18).execute("CREATE TABLE t (a int)")
    piped = run_process("load", "-", "--into", "t", "--on-error", "reject", "--to", database18, stdin="a\n1\nx\n")
    assert piped.code == 3
    forget = ["loads", "forget", "latest", "--keep-rows", "--to", database18]
    refused = penstock(*forget)
    assert (refused.code, "1 rejected record, which the ledger would lose" in refused.err) == (6, True)
    assert penstock("rejects", "latest", "--discard", "--to", database18).code == 0
    assert penstock(*forget).code == 0


def test_load_that_was_cut_short_is_forgotten_with_its_rows_told(
    penstock: Run, database18: str, cut_short: str
) -> None:
    """The ledger knows how many there are."""
    count = Loads(database18).count()
    assert penstock("loads", "forget", cut_short, "--to", database18).code == 6
    forgotten = penstock("loads", "forget", cut_short, "--keep-rows", "--to", database18)
    assert f'{count:,} rows of it remain in "public.t"' in forgotten.err
    assert penstock("loads", "--to", database18).out.startswith("no loads on PostgreSQL ")


@pytest.mark.parametrize("command", [("loads", "forget", "--keep-rows"), ("rejects", "--discard")])
def test_load_at_work_is_not_forgotten_nor_its_rejects(
    penstock: Run, database18: str, tmp_path: Path, command: tuple[str, ...]
) -> None:
    """Its next batches would be refused, and the same files loaded twice."""
    loads = Loads(database18, piece_bytes=509, setup="CREATE TABLE t (a int, b text)")
    path = write_to(tmp_path / "numbers", "a,b\nx,y\n" + "".join(f"{n},value {n}\n" for n in range(ROWS)))
    refused: list[Finished] = []

    def forget(number: int) -> None:
        if number == 20:
            load_id = loads.execute("SELECT id::text FROM penstock.loads")[0][0]
            refused.append(penstock(*command, load_id, "--to", database18))

    loads.at_piece = forget
    rules = LoadRules(retry_for=0.0, on_error="reject")
    assert loads.run(target(path, has_header=True), batch_bytes=4000, rules=rules).rows == ROWS
    assert loads.execute("SELECT raw FROM penstock.rejects") == [(b"x,y\n",)]
    assert (refused[0].code, loads.count()) == (6, ROWS)
    assert refused[0].err.splitlines()[0].endswith("is running")
    assert "pg_terminate_backend" in refused[0].err


@pytest.mark.parametrize("lose", ["DELETE FROM penstock.loads", "DROP SCHEMA penstock CASCADE"])
@pytest.mark.parametrize("patience_s", [0.0, 20.0])
def test_load_that_the_ledger_lost_tells_which_rows_stay(
    database18: str, tmp_path: Path, lose: str, patience_s: float
) -> None:
    """It neither says that nothing was loaded nor begins anew, which would store the rows twice."""
    loads = Loads(database18, piece_bytes=509, setup="CREATE TABLE t (a int, b text)")
    path = write_to(tmp_path / "numbers", "a,b\n" + "".join(f"{n},value {n}\n" for n in range(ROWS)))

    def forget(number: int) -> None:
        if number == 40:
            while not loads.count():
                time.sleep(0.01)
            loads.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
            loads.execute(lose)

    loads.at_piece = forget
    with pytest.raises(PenstockError) as caught:
        loads.run(target(path), batch_bytes=4000, rules=LoadRules(retry_for=patience_s))
    assert "The ledger does not have load" in str(caught.value.detail)
    assert 'were committed to "public.t"' in str(caught.value.detail)
    assert "remove these rows" in str(caught.value.hint)
    assert 0 < loads.count() < ROWS


@pytest.mark.parametrize("command", [["loads", "show"], ["loads", "forget"], ["resume"], ["rejects"], ["retry"]])
def test_empty_id_is_no_beginning_of_one(penstock: Run, database18: str, people: str, command: list[str]) -> None:
    """An empty variable of a script would stand for the only load that there is."""
    penstock("load", people, "--into", "public.people", "--create", "--to", database18)
    refused = penstock(*command, "", "--to", database18)
    assert (refused.code, refused.err.splitlines()[0]) == (6, "error: the load's id is empty")
    assert "complete" in penstock("loads", "--to", database18).out


@pytest.mark.parametrize("option", [["--to", "elsewhere"], ["--json"], ["--ledger-schema", "x"], ["--role=x"]])
def test_option_before_a_command_that_would_not_see_it_is_an_error(penstock: Run, option: list[str]) -> None:
    """The load would be looked for, and forgotten, in another database than the one that was named."""
    refused = penstock("loads", *option, "forget", "1")
    name = option[0].partition("=")[0]
    assert (refused.code, refused.err.splitlines()[0]) == (
        2,
        f"error: {name} must come after forget",
    )


@pytest.mark.parametrize("command", [["loads", "show"], ["loads", "forget"], ["resume"]])
def test_unknown_load_is_an_error(penstock: Run, database18: str, command: list[str]) -> None:
    """Not a traceback, whatever was typed for an id."""
    refused = penstock(*command, "nonsense", "--to", database18)
    assert (refused.code, refused.err.splitlines()[0]) == (6, "error: load nonsense does not exist")


def test_spooled_pipe_is_loaded_by_several_sessions(database18: str) -> None:
    """And its copy is gone afterwards."""
    command = ["load", "-", "--into", "public.spooled", "--create", "--to", database18, "--sessions", "3", "--json"]
    rows = "a,b\n" + "".join(f"{n},{'x' * 100}\n" for n in range(20_000))
    spooled = run_process(*command, "--spool", stdin=rows)
    assert spooled.code == 0, spooled.err
    assert spooled.object["rows"] == 20_000


@pytest.mark.part("rest")
@pytest.mark.parametrize("options", [[], ["--spool"]])
def test_standard_input_is_loaded_each_time(database18: str, options: list[str]) -> None:
    """Its name says nothing of what it brings."""
    command = ["load", "-", "--into", "public.piped", "--create", "--to", database18, "--json", *options]
    for number in (1, 2):
        done = run_process(*command, stdin=f"a,b\n{number},x\n")
        assert (done.code, done.object["rows"]) == (0, 1), done.err
    assert Loads(database18).count("piped") == 2


def test_spooled_standard_input_is_not_resumed_by_its_id(
    penstock: Run, database18: str, people: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever goes on has another; the same command may be given the same once more."""
    loads = Loads(database18, setup="CREATE TABLE people (id int, name text)")
    begin = Ledger.begin

    def begin_as_stdin(ledger: Ledger, *args: Any, **options: Any) -> object:
        begin(ledger, *args, **options | {"job": options["job"].replace(people, "-")})
        raise ServerError("the loader is gone")

    with monkeypatch.context() as patched:
        patched.setattr(Ledger, "begin", begin_as_stdin)
        with pytest.raises(ServerError):
            loads.run(target(people, into="people"))  # type: ignore[arg-type]
    ((load_id,),) = loads.execute("SELECT id::text FROM penstock.loads")
    assert not penstock("loads", "show", load_id, "--to", database18, "--json").object["can_resume"]
    refused = penstock("resume", load_id, "--to", database18)
    assert (refused.code, refused.err.splitlines()[0]) == (
        6,
        f"error: load {load_id} read a pipe, or a URL of which the ledger does not have the query or password",
    )


def test_ledger_schema_of_ones_own(penstock: Run, database18: str, people: str) -> None:
    """Schema penstock is not touched."""
    options = ["--to", database18, "--ledger-schema", "Mine own"]
    penstock("load", people, "--into", "public.people", "--create", *options)
    assert "complete" in penstock("loads", *options).out
    assert penstock("loads", "--to", database18).out.startswith("no loads on PostgreSQL ")


@pytest.mark.part("rest")
def test_interrupt_commits_what_is_under_way_and_says_how_to_go_on(database18: str, tmp_path: Path) -> None:
    """Ctrl-C in the middle of many files: each row is there once after the load is run again."""
    with psycopg.connect(database18, autocommit=True) as connection:
        connection.execute("CREATE TABLE slow (a int)")
        connection.execute(
            "CREATE FUNCTION wait() RETURNS trigger LANGUAGE plpgsql AS"
            " 'BEGIN PERFORM pg_sleep(0.0005); RETURN NEW; END'"
        )
        connection.execute("CREATE TRIGGER wait BEFORE INSERT ON slow FOR EACH ROW EXECUTE FUNCTION wait()")
    for number in range(20):
        (tmp_path / f"{number:02}.csv").write_text("a\n" + "".join(f"{number * 100 + n}\n" for n in range(100)))
    command = ["load", str(tmp_path), "--into", "slow", "--to", database18, "--sessions", "2"]
    process = subprocess.Popen(
        [sys.executable, "-m", "penstock", *command],
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ},
    )
    with psycopg.connect(database18, autocommit=True) as connection:
        # Some way into it: an interrupt while sessions are being started gives the load up at once.
        under_way = "SELECT FROM pg_stat_progress_copy HAVING sum(tuples_processed) >= 300"
        while connection.execute(under_way).fetchone() is None and process.poll() is None:
            time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, messages = process.communicate()
    again = run_process(*command)
    with psycopg.connect(database18) as connection:
        assert connection.execute("SELECT count(*), count(DISTINCT a) FROM slow").fetchone() == (2000, 2000)
    assert process.returncode in {0, 130}, messages
    if process.returncode:
        assert "finishing the current batches" in messages
        assert "rows are committed in load" in messages
        assert "penstock resume" in messages
    assert again.code == 0, again.err


@pytest.mark.parametrize(
    "arguments", [["loads", "--into", "nosuch"], ["loads", "--ledger-schema", "x"], ["repair", "--ledger-schema", "x"]]
)
def test_name_that_does_not_exist_is_an_error(penstock: Run, database18: str, arguments: list[str]) -> None:
    """A list without loads would say that there is nothing."""
    assert penstock(*arguments, "--to", database18).code == TargetError.exit_code


def test_table_of_a_load_may_be_dropped(penstock: Run, database18: str, tmp_path: Path) -> None:
    """Its loads are listed, also in a time in which there is none."""
    write_to(tmp_path / "f.csv", "a\n1\n")
    assert penstock("load", str(tmp_path / "f.csv"), "--into", "t", "--create", "--to", database18).code == 0
    with psycopg.connect(database18, autocommit=True) as connection:
        connection.execute("DROP TABLE t")
    for more in ([], ["--since", "1ms"]):
        assert penstock("loads", "--into", "t", "--to", database18, *more).code == 0


def test_table_without_loads_has_none(penstock: Run, database18: str) -> None:
    """It exists."""
    with psycopg.connect(database18, autocommit=True) as connection:
        connection.execute("CREATE TABLE t (a int)")
    assert penstock("loads", "--into", "t", "--to", database18).code == 0
