"""`penstock load` as typed, on real servers."""

from __future__ import annotations

import gzip
import json
import os
import pty
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from support.command import run_process
from support.files import write_to

if TYPE_CHECKING:
    from collections.abc import Callable

    from support.command import Finished

    Run = Callable[..., Finished]

_ROWS = "id,name\n1,Ann\n2,Bob\n3,\n"


@pytest.fixture
def people(tmp_path: Path) -> str:
    """Provide a CSV file of three rows with a header."""
    path = write_to(tmp_path / "people.csv", _ROWS)
    return str(path)


def _query(database: str, query: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(database) as connection:
        return connection.execute(query).fetchall()


def _execute(database: str, statement: str) -> None:
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(statement)


def test_load_creates_table_and_says_what_it_did(penstock: Run, database18: str, people: str) -> None:
    """The result on standard output, the dialect on standard error."""
    finished = penstock("load", people, "--into", "public.people", "--create", "--to", database18)
    assert finished.code == 0, finished.err
    assert finished.out.startswith("loaded 3 rows into public.people in ")
    assert finished.err == "dialect: csv, delimiter ',', quote '\"', null '', header, UTF8, not compressed\n"
    assert _query(database18, "SELECT * FROM people ORDER BY id") == [("1", "Ann"), ("2", "Bob"), ("3", None)]


@pytest.mark.parametrize(("options", "key"), [((), None), (("--check",), None), (("--plan",), "server")])
def test_result_names_server_and_database(
    penstock: Run, database18: str, people: str, options: tuple[str, ...], key: str | None
) -> None:
    """In the first line of text, and as JSON."""
    _execute(database18, "CREATE TABLE people (id text, name text)")
    command = ("load", people, "--into", "people", "--to", database18, "--again", *options)
    name = conninfo_to_dict(database18)["dbname"]
    first = penstock(*command).out.splitlines()[0]
    assert f" database {name}" in first or f" dbname={name} " in first
    shown = penstock(*command, "--json").object
    assert (shown if key is None else shown[key])["database"] == name
    assert re.match(r"PostgreSQL \d+ at ", shown["server"] if key is None else shown[key]["name"])


def test_plan_says_why_one_transaction_has_one_session(penstock: Run, database18: str, people: str) -> None:
    """More were asked for."""
    command = ("load", people, "--into", "people", "--create", "--to", database18, "--plan", "--atomic")
    assert "all rows are loaded in one transaction" in penstock(*command, "--sessions", "4").out


@pytest.mark.parametrize("variable", ["PGUSER", "PGPASSWORD", "PGSERVICEFILE"])
def test_no_embedded_server_where_libpq_is_told_something(people: str, tmp_path: Path, variable: str) -> None:
    """As in cron, with a password only: libpq's own default is tried, and no server is made."""
    environment = {variable: "nobody-of-that-name", "PENSTOCK_HOME": str(tmp_path / "home"), "PGCONNECT_TIMEOUT": "3"}
    finished = run_process("load", people, "--into", "people", "--create", environment=environment)
    assert finished.code == 7, finished.err
    assert "could not connect to " in finished.err
    assert "Name the server with --to or PGHOST" in finished.err
    assert not (tmp_path / "home").exists()


def test_dialect_names_the_encoding_that_the_mark_tells(penstock: Run, database18: str, tmp_path: Path) -> None:
    """What Excel saves as Unicode text is not called UTF8, in the plan neither."""
    path = write_to(tmp_path / "wide.csv", "id,name\n1,Zoë\n".encode("utf-16"))
    common = ("load", str(path), "--into", "people", "--create", "--to", database18)
    assert "header, UTF16LE, not compressed" in penstock(*common, "--plan").out
    assert "header, UTF16LE, not compressed" in penstock(*common).err
    assert _query(database18, "TABLE people") == [("1", "Zoë")]


def test_every_option_of_the_dialect_reaches_the_load(penstock: Run, database18: str, tmp_path: Path) -> None:
    """A file that no probing would understand is read as the options say."""
    path = write_to(tmp_path / "odd.txt", "1;'J\\'s ; café';-\n2;?;x\n".encode("latin-1"))
    _execute(database18, "CREATE TABLE odd (id int, name text, source text, note text DEFAULT 'd')")
    options = ["--format", "csv", "--delimiter", ";", "--quote", "'", "--escape", "\\", "--null", "-", "--null", "?"]
    columns = ["--no-header", "--encoding", "LATIN1", "--columns", "id,name,extra", "--skip", "extra"]
    constants = ["--set", "source={filename}", "--set", "note={default}", "--sessions", "1"]
    finished = penstock("load", str(path), "--into", "odd", "--to", database18, *options, *columns, *constants)
    assert finished.code == 0, finished.err
    rows = _query(database18, "SELECT * FROM odd ORDER BY id")
    assert rows == [(1, "J's ; café", "odd.txt", "d"), (2, None, "odd.txt", "d")]


def test_json_result_has_the_documented_keys(penstock: Run, database18: str, people: str) -> None:
    """One object on standard output, whatever standard error says."""
    finished = penstock("load", people, "--into", "public.people", "--create", "--to", database18, "--json")
    keys = {"load_id", "state", "rows", "rejected", "suppressed", "bytes_read", "bytes_copied", "seconds", "sessions"}
    keys |= {"files", "is_local_only", "rows_before", "objects_skipped"}
    assert keys <= set(finished.object)
    assert (finished.object["state"], finished.object["rows"]) == ("complete", 3)
    assert finished.object["bytes_read"] == len(_ROWS)
    (file,) = finished.object["files"]
    assert {**file, "seconds": 0} == {"uri": people, "table": "public.people", "rows": 3, "seconds": 0}


def test_quiet_load_says_nothing(penstock: Run, database18: str, people: str) -> None:
    """Neither on standard output nor on standard error."""
    finished = penstock("load", people, "--into", "public.people", "--create", "--to", database18, "--quiet")
    assert (finished.code, finished.out, finished.err) == (0, "", "")


def test_several_files_are_listed_in_columns(penstock: Run, database18: str, people: str, tmp_path: Path) -> None:
    """One line a file, under heads, after the line for all."""
    (tmp_path / "more.csv").write_text(_ROWS)
    finished = penstock("load", str(tmp_path / "*.csv"), "--into", "public.people", "--create", "--to", database18)
    total, head, *files, _, _ = finished.out.splitlines()
    assert total.startswith("loaded 6 rows into public.people in ")
    assert head.split() == ["file", "table", "rows", "time"]
    assert [line.split()[:3] for line in files] == [
        [str(tmp_path / "more.csv"), "public.people", "3"],
        [people, "public.people", "3"],
    ]
    assert {len(line) - len(line.rstrip()) for line in files} == {0}


def test_of_many_files_those_that_took_longest_are_listed(penstock: Run, database18: str, tmp_path: Path) -> None:
    """A screen has no room for all; --json does."""
    for number in range(30):
        (tmp_path / f"f{number}.csv").write_text(f"a\n{number}\n")
    common = ("load", str(tmp_path), "--into", "public.many", "--create", "--to", database18)
    lines = penstock(*common).out.splitlines()
    assert "30 files; those that took longest (--json has all):" in lines
    assert sum("/f" in line for line in lines) == 10
    assert len(penstock(*common, "--again", "--json").object["files"]) == 30


def test_empty_folder_is_loaded_as_nothing(penstock: Run, database18: str, tmp_path: Path) -> None:
    """With exit code 0, a warning, and the database as it was; what is there for other targets is loaded."""
    empty, full = tmp_path / "empty", tmp_path / "full"
    empty.mkdir()
    full.mkdir()
    common = ("load", str(empty), "--into", "public.t", "--create", "--to", database18)
    for options in ((), ("--plan",), ("--check",)):
        finished = penstock(*common, *options)
        assert (finished.code, "holds no files to load" in finished.out + finished.err) == (0, True), options
    assert "nothing to load: no files" in penstock(*common).out
    with psycopg.connect(database18) as connection:
        assert connection.execute("SELECT to_regclass('t'), to_regnamespace('penstock')").fetchone() == (None, None)
    assert penstock(*common, "--warnings", "error").code == 2
    (full / "a.csv").write_text("a\n1\n")
    job = tmp_path / "job.toml"
    job.write_text(
        "".join(
            f"[[target]]\nsources = [{json.dumps(str(folder))}]\ninto = 'public.{folder.name}'\ncreate = true\n"
            for folder in (empty, full)
        )
    )
    assert "loaded 1 row into public.full" in penstock("load", str(job), "--to", database18).out


def test_columns_that_a_nightly_file_lacks_get_their_defaults(penstock: Run, database18: str, tmp_path: Path) -> None:
    """With --missing default; without, the error names it. A column that may not be null is needed all the same."""
    with psycopg.connect(database18) as connection:
        connection.execute("CREATE TABLE nightly (a int NOT NULL, b text, c int DEFAULT 7)")
    path = write_to(tmp_path / "n.csv", "a\n1\n")
    common = ("load", str(path), "--into", "nightly", "--to", database18)
    refused = penstock(*common)
    assert refused.code != 0
    assert "--missing default" in refused.err
    assert penstock(*common, "--missing", "default").code == 0
    with psycopg.connect(database18) as connection:
        assert connection.execute("SELECT a, b, c FROM nightly").fetchall() == [(1, None, 7)]
    path.write_text("b\nx\n")
    refused = penstock(*common, "--missing", "default", "--changed", "load")
    assert 'column "a" of table "public.nightly" is not in the file' in refused.err


def test_bad_value_exits_with_5_and_names_the_line(penstock: Run, database18: str, people: str) -> None:
    """Also in the object for JSON."""
    _execute(database18, "CREATE TABLE people (id int, name int)")
    finished = penstock("load", people, "--into", "people", "--to", database18, "--json")
    assert finished.code == 5
    assert finished.err.splitlines()[1] == 'error: invalid input syntax for type integer: "Ann"'
    error = finished.object["error"]
    assert error["message"] == 'invalid input syntax for type integer: "Ann"'
    assert f'{people} line 2, column "name"' in error["detail"]
    places = {name: error[name] for name in ("file", "line", "column", "sqlstate", "load_id")}
    assert places == {"file": people, "line": 2, "column": "name", "sqlstate": "22P02", "load_id": None}


def test_failure_as_json_names_the_line_where_no_server_spoke(penstock: Run, database18: str, tmp_path: Path) -> None:
    """Bytes that are no text are found in the sample, before anything is sent."""
    _execute(database18, "CREATE TABLE people (id int, name text)")
    path = tmp_path / "people.csv"
    common = ("load", str(path), "--into", "people", "--to", database18, "--json")
    path.write_bytes(b"id,name\n1,a\n2,\xff\n")
    error = penstock(*common).object["error"]
    assert (error["file"], error["line"], error["sqlstate"]) == (str(path), 3, None)


def test_json_lines_are_loaded_whole_by_any_dialect_that_leaves_them_alone(
    penstock: Run, database18: str, tmp_path: Path
) -> None:
    """As JSON Lines, which is recognized, or as one field of csv; beside a file of csv they are refused."""
    _execute(database18, "CREATE TABLE docs (doc jsonb)")
    path = tmp_path / "docs.json"
    docs = [{"a": 'x,"y"\\n\t', "b": [number]} for number in range(5)]
    path.write_text("".join(f"{json.dumps(doc)}\n" for doc in docs))
    plain = write_to(tmp_path / "a.csv", "doc\n{}\n")
    second = penstock("load", str(plain), str(path), "--into", "docs", "--to", database18)
    assert (second.code, f"{path} has format jsonl; the first file csv" in second.err) == (5, True)
    planned = penstock("load", str(path), "--into", "docs", "--plan", "--to", database18)
    assert "dialect  jsonl, UTF8, not compressed" in planned.out
    assert "(the whole record)  ->  doc  jsonb" in planned.out
    for options in ([], ["--format", "csv", "--delimiter", r"\x01", "--quote", r"\x02"]):
        assert penstock("load", str(path), "--into", "docs", "--again", *options, "--to", database18).code == 0
    assert [row[0] for row in _query(database18, "TABLE docs")] == docs * 2


def test_record_that_is_too_long_is_an_error(penstock: Run, database18: str, tmp_path: Path) -> None:
    """The error for a quote that never ends names the line on which it begins. A larger limit allows the record."""
    _execute(database18, "CREATE TABLE t (id int, name text)")
    path = write_to(tmp_path / "long.csv", 'id,name\n1,a\n2,"' + "x\n" * 750_000)
    common = ("load", str(path), "--into", "t", "--to", database18)
    finished = penstock(*common, "--max-record", "1MB")
    assert (finished.code, _query(database18, "TABLE t")) == (5, [])
    assert "error: a record is longer than 1.00 MB\n" in finished.err
    assert f"It begins in {path} line 3." in finished.err
    assert "--max-record" in finished.err
    assert "unterminated CSV quoted field" in penstock(*common).err
    path.write_text('id,name\n1,a\n2,"' + "x\n" * 750_000 + '"\n')
    assert penstock(*common, "--max-record", "1MB", "--check").code == 5
    assert penstock(*common, "--max-record", "2MB").code == 0
    assert _query(database18, "SELECT length(name) FROM t ORDER BY id") == [(1,), (1_500_000,)]


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["nowhere.csv", "--into", "people", "--create"], 4),
        (["{people}", "--into", "people"], 6),
        (["{people}", "--into", "people", "--create", "--role", "nobody_at_all"], 7),
    ],
)
def test_exit_code_tells_the_kind_of_error(
    penstock: Run, database18: str, people: str, arguments: list[str], code: int
) -> None:
    """Scripts can distinguish errors of the source, the target and the server."""
    finished = penstock("load", *(word.format(people=people) for word in arguments), "--to", database18)
    assert finished.code == code
    assert finished.err.startswith("error: ")


def test_standard_input_is_loaded(database18: str) -> None:
    """`-` is standard input."""
    finished = run_process("load", "-", "--into", "public.people", "--create", "--to", database18, stdin=_ROWS)
    assert finished.code == 0, finished.err
    assert finished.out.startswith("loaded 3 rows")


def test_fields_of_a_failure_are_those_that_are_documented(penstock: Run, database18: str, tmp_path: Path) -> None:
    """All of them, in every failure."""
    path = write_to(tmp_path / "f.csv", "a\n1\nx\n")
    with psycopg.connect(database18, autocommit=True) as connection:
        connection.execute("CREATE TABLE documented (a int)")
    text = (Path(__file__).parents[2] / "docs" / "reference" / "failures.md").read_text(encoding="utf-8")
    documented = set(re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE))
    for into in ("documented", "nowhere"):
        error = penstock("load", str(path), "--into", into, "--json", "--to", database18).object["error"]
        assert set(error) == documented


def test_plan_describes_everything_and_touches_nothing(penstock: Run, database18: str, people: str) -> None:
    """Server, sessions, table, dialect, columns, objects."""
    finished = penstock(
        *("load", people, "--into", "public.people", "--create", "--to", database18),
        *("--plan", "--skip", "name", "--set", "source={filename}"),
    )
    assert finished.code == 0, finished.err
    assert "table    public.people (to be created, 2 text columns)" in finished.out
    assert "  id    ->  id       text\n  name      skipped\n" in finished.out
    assert "  source  <-  --set  {filename}\n" in finished.out
    assert f"objects  1, {len(_ROWS)} B\n  {people}  {len(_ROWS)} B\n" in finished.out
    assert _query(database18, "SELECT to_regclass('people')") == [(None,)]


def test_plan_as_json_names_what_the_files_lack(penstock: Run, database18: str, people: str) -> None:
    """Generated columns, identities, defaults and nulls apart."""
    _execute(
        database18,
        "CREATE TABLE people (id int, name text, n int GENERATED ALWAYS AS (id * 2) STORED,"
        " k int GENERATED ALWAYS AS IDENTITY, d int DEFAULT 1)",
    )
    plan = penstock("load", people, "--into", "people", "--to", database18, "--plan", "--json").object
    (target,) = plan["targets"]
    assert target["not_in_files"] == {"n": "generated", "k": "identity", "d": "default"}
    assert [field["type_name"] for field in target["fields"]] == ["integer", "text"]
    assert plan["state"] == "planned"


def test_check_prints_each_problem_and_exits_with_5(penstock: Run, database18: str, tmp_path: Path) -> None:
    """In the file's own lines; nothing is loaded."""
    path = write_to(tmp_path / "bad.csv", "id,name\n1,a\nx,b\n3,c\ny,d\n")
    _execute(database18, "CREATE TABLE people (id int, name text)")
    finished = penstock("load", str(path), "--into", "people", "--to", database18, "--check")
    assert finished.code == 5
    *problems, summary = finished.out.splitlines()
    expected = '{} line {}, column "id": invalid input syntax for type integer: "{}"'
    assert problems == [expected.format(path, 3, "x"), expected.format(path, 5, "y")]
    assert re.search(r": 2 problems found, nothing loaded on PostgreSQL \d+ at ", summary)
    assert _query(database18, "SELECT count(*) FROM people") == [(0,)]


def test_check_as_json_lists_problems(penstock: Run, database18: str, people: str) -> None:
    """One object; without problems the exit code is 0."""
    checked = penstock("load", people, "--into", "public.people", "--create", "--to", database18, "--check", "--json")
    assert checked.code == 0, checked.err
    assert (checked.object["state"], checked.object["rows"], checked.object["problems"]) == ("checked", 3, [])


def test_presigned_url_is_shown_without_its_signature(penstock: Run, database18: str) -> None:
    """Not even where it cannot be read."""
    url = "http://ann:s3cret@127.0.0.1:9/people.csv?X-Amz-Signature=s3cret"
    finished = penstock(
        "load", url, "--into", "public.people", "--create", "--retry-for", "0", "--to", database18, "--json"
    )
    assert finished.code == 4
    assert "http://127.0.0.1:9/people.csv" in finished.err
    assert "s3cret" not in finished.err + finished.out


@pytest.mark.part("rest")
def test_second_termination_rolls_back_and_drops_the_made_table(database18: str, people: str, tmp_path: Path) -> None:
    """SIGTERM is like Ctrl-C: the first lets batches end, which a lock prevents here, and the second gives them up."""
    _execute(database18, "CREATE TABLE locked (id int, name text)")
    job = tmp_path / "job.toml"
    targets = [f"[[target]]\nsources = '{people}'\ninto = '{name}'\ncreate = true\n" for name in ("made", "locked")]
    job.write_text("".join(targets))
    with psycopg.connect(database18) as holder:
        holder.execute("LOCK TABLE locked")
        command = [sys.executable, "-m", "penstock", "load", str(job), "--to", database18]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        waiting = "SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
        while not _query(database18, waiting):
            assert process.poll() is None
            time.sleep(0.01)
        assert process.stderr is not None
        process.send_signal(signal.SIGTERM)
        while "interrupt again" not in process.stderr.readline():
            assert process.poll() is None
        process.send_signal(signal.SIGTERM)
        _, messages = process.communicate()
    assert process.returncode == 130
    assert messages.endswith("error: load interrupted\nDETAIL:  No rows were loaded.\n")
    assert _query(database18, "SELECT to_regclass('made')") == [(None,)]


def test_messages_that_cannot_be_written_do_not_end_a_load(database18: str, people: str) -> None:
    """A log on a full disk, or a reader of it that has gone, costs the messages and not the load."""
    words = [sys.executable, "-m", "penstock", "load", people, "--into", "people", "--create", "--to", database18]
    command = f"{shlex.join(words)} 2>/dev/full"
    finished = subprocess.run(["sh", "-c", command], stdout=subprocess.PIPE, text=True, check=False)
    assert finished.returncode == 0
    assert finished.stdout.startswith("loaded ")


@pytest.mark.part("rest")
def test_terminal_shows_bars_and_wipes_them(database18: str, people: str) -> None:
    """Standard error on a terminal; the result is still on standard output, and the cursor comes back."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "penstock", "load", people, "--into", "public.people", "--create"]
    finished = subprocess.run(
        [*command, "--to", database18],
        env={**os.environ, "COLUMNS": "100", "TERM": "xterm"},
        stdout=subprocess.PIPE,
        stderr=theirs,
        text=True,
        check=True,
    )
    shown = os.read(ours, 65536).decode()
    os.close(ours)
    os.close(theirs)
    assert finished.stdout.startswith("loaded 3 rows into public.people")
    assert "100 %" in shown
    assert "committing, " in shown
    assert shown.rstrip().endswith("\x1b[2K")
    assert shown.index("\x1b[?25l") < shown.index("\x1b[?25h")


_MODULES_PROGRAM = """
import json, sys
from penstock.cli.main import main
code = main(sys.argv[1:])
print(json.dumps(sorted(sys.modules)), file=sys.stderr)
sys.exit(code)
"""


def test_local_load_imports_nothing_that_it_does_not_need(database18: str, tmp_path: Path) -> None:
    """Start-up is CPU time that every load pays."""
    path = write_to(tmp_path / "people.csv.gz", gzip.compress(_ROWS.encode()))
    arguments = ["load", str(path), "--into", "public.people", "--create", "--to", database18, "--quiet"]
    # A load that takes longer than half a second on a busy machine would be sampled.
    arguments += ["--no-record"]
    finished = subprocess.run(
        [sys.executable, "-c", _MODULES_PROGRAM, *arguments], capture_output=True, text=True, check=True
    )
    modules = set(json.loads(finished.stderr))
    heavy = {"boto3", "botocore", "obstore", "pydantic", "rich", "penstock_lab"}
    assert modules & heavy == set()
    assert not modules & {"penstock.loading.command.bars", "penstock.embedded.command", "penstock_lab.command.lab"}


def test_help_of_a_load_imports_no_driver_and_no_loader() -> None:
    """Help and completion answer at once."""
    finished = subprocess.run(
        [sys.executable, "-c", _MODULES_PROGRAM, "load", "--help"], capture_output=True, text=True, check=True
    )
    assert not set(json.loads(finished.stderr)) & {"psycopg", "penstock.loading.loader", "penstock.ledger.ledger"}


def test_result_that_cannot_be_written_says_that_the_load_succeeded(database18: str, people: str) -> None:
    """The rows are there: whoever repeats the load would have them twice."""
    arguments = ["load", people, "--into", "public.people", "--create", "--json", "--quiet", "--to", database18]
    command = f"{shlex.join([sys.executable, '-m', 'penstock', *arguments])} > /dev/full"
    finished = subprocess.run(["sh", "-c", command], stderr=subprocess.PIPE, text=True, check=False)
    message = "error: could not write to standard output: No space left on device\nDETAIL:  The load itself succeeded: "
    assert finished.returncode == 1
    assert finished.stderr.startswith(f"{message}loaded 3 rows into public.people")
    assert _query(database18, "SELECT count(*) FROM people") == [(3,)]


@pytest.mark.parametrize("closed", ["2>&-", "<&-", "<&- 2>&-"])
def test_closed_streams_do_not_stop_a_load(database18: str, people: str, closed: str) -> None:
    """As cron jobs and daemons may have it: messages then go nowhere, and nothing else gets their numbers."""
    arguments = ["load", people, "--into", "public.people", "--create", "--json", "--to", database18]
    command = f"{shlex.join([sys.executable, '-m', 'penstock', *arguments])} {closed}"
    finished = subprocess.run(["sh", "-c", command], stdout=subprocess.PIPE, text=True, check=False)
    assert (finished.returncode, json.loads(finished.stdout)["rows"]) == (0, 3)


def test_closed_standard_input_is_an_error(database18: str) -> None:
    """It is not what was opened since: a connection, say."""
    arguments = ["load", "-", "--into", "public.people", "--to", database18]
    command = f"{shlex.join([sys.executable, '-m', 'penstock', *arguments])} <&-"
    _execute(database18, "CREATE TABLE people (id int)")
    finished = subprocess.run(["sh", "-c", command], stderr=subprocess.PIPE, text=True, check=False, timeout=60)
    assert (finished.returncode, finished.stderr) == (4, 'error: could not read "stdin": Bad file descriptor\n')


def test_plan_for_a_closed_output_is_one_error(database18: str, people: str) -> None:
    """No descriptor that the load opens is taken for standard output."""
    arguments = ["load", people, "--into", "public.people", "--create", "--json", "--plan", "--to", database18]
    command = f"{shlex.join([sys.executable, '-m', 'penstock', *arguments])} >&-"
    finished = subprocess.run(["sh", "-c", command], stderr=subprocess.PIPE, text=True, check=False)
    assert finished.returncode == 1
    assert finished.stderr == "error: could not write to standard output: Bad file descriptor\n"


def test_header_that_names_no_column_of_the_table_is_refused(penstock: Run, database18: str, tmp_path: Path) -> None:
    """It is not loaded as a row."""
    path = write_to(tmp_path / "hh.csv", "tconst,rating\nt1,5\n")
    _execute(database18, "CREATE TABLE hh (id text, score text)")
    finished = penstock("load", str(path), "--into", "hh", "--to", database18)
    assert finished.code == 6
    assert finished.err.startswith('error: column "tconst" of the file does not exist in table "public.hh"')


def test_check_that_cannot_write_its_findings_is_one_error(database18: str, tmp_path: Path) -> None:
    """The first finding that is lost ends it."""
    path = write_to(tmp_path / "bad.csv", "id\nx\ny\n")
    _execute(database18, "CREATE TABLE numbers (id int)")
    arguments = ["load", str(path), "--into", "numbers", "--check", "--quiet", "--header", "--to", database18]
    command = f"{shlex.join([sys.executable, '-m', 'penstock', *arguments])} > /dev/full"
    finished = subprocess.run(["sh", "-c", command], stderr=subprocess.PIPE, text=True, check=False)
    assert finished.returncode == 1
    assert finished.stderr == "error: could not write to standard output: No space left on device\n"


def test_lists_of_a_repeated_option_are_one(penstock: Run, database18: str, tmp_path: Path) -> None:
    """A column is named in the same way in each option, with or without the quotes that a list may have."""
    path = write_to(tmp_path / "f.csv", "umsatz (€);menge;rabatt\n1.234,5;0,5;1.000,25\n")
    command = ("load", str(path), "--into", "t", "--create", "--types", "infer", "--to", database18)
    planned = penstock(*command, "--plan")
    named = ("--decimal-comma", "umsatz (€)", "--thousands", "umsatz (€)=.", "--decimal-comma", "menge")
    assert shlex.join(named[:4]) in planned.out
    assert shlex.join(named[4:]) in planned.out
    quoted = ("--decimal-comma", '"rabatt",menge', "--thousands", '"rabatt"=.')
    finished = penstock(*command, *named, *quoted)
    assert finished.code == 0, finished.err
    assert [str(value) for value in _query(database18, "SELECT * FROM t")[0]] == ["1234.5", "0.5", "1000.25"]


def test_limit_of_a_sync_is_named_as_a_key_of_the_job_file(
    penstock: Run, database18: str, people: str, tmp_path: Path
) -> None:
    """With its percent sign."""
    _execute(database18, "CREATE TABLE t (id int PRIMARY KEY, name text); INSERT INTO t VALUES (3), (4), (5)")
    job = f"[[target]]\nsources = '{people}'\ninto = 't'\nmode = 'sync'\nkey = 'id'\n"
    refused = penstock("load", str(write_to(tmp_path / "job.toml", job)), "--to", database18)
    assert 'again with max_delete = "67%".' in refused.err


def test_sync_deletes_at_most_what_its_option_says(penstock: Run, database18: str, people: str) -> None:
    """The error names the option in the form in which it is typed, and the result counts the rows."""
    _execute(database18, "CREATE TABLE t (id int PRIMARY KEY, name text); INSERT INTO t VALUES (3), (4), (5)")
    command = ("load", people, "--into", "t", "--mode", "sync", "--key", "id", "--to", database18)
    refused = penstock(*command)
    assert refused.code == 6
    assert "2 of its 3 rows are not in the files, which is more than 10%" in refused.err
    assert "run the same load command again with --max-delete 67%." in refused.err
    assert "resume" not in refused.err
    assert penstock(*command, "--max-delete", "ten").code == 2
    finished = penstock(*command, "--max-delete", "67%", "--json")
    assert (finished.code, finished.object["deleted"], finished.object["rows"]) == (0, 2, 3)
