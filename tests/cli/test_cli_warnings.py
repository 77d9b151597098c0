"""Warnings as data: in JSON, in the outcome, on standard error also of a quiet command, and as errors."""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from penstock.api.connect import connect_to
from penstock.api.functions import load
from penstock.core.errors import UsageError
from penstock.core.values.job import LoadJob, LoadRules
from penstock.core.values.notice import Notice
from penstock.loading.loader import Loader
from penstock.loading.warned import WarningLog
from support.files import write_to
from support.loads import Loads, target

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from support.command import Finished

    Run = Callable[..., Finished]

_WARNS = """
CREATE FUNCTION mind() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN IF NEW.a = 7 THEN RAISE WARNING 'mind %', NEW.a; END IF; RETURN NEW; END $$;
CREATE TABLE w (a int, b text);
CREATE TRIGGER mind BEFORE INSERT ON w FOR EACH ROW EXECUTE FUNCTION mind();
CREATE TABLE t (a int, b text);
"""
_MESSAGE = "quote in the middle of a field: csv drops it and treats the rest as quoted"


@pytest.fixture
def database(database18: str) -> str:
    """Provide a database with table t, and w which warns of a row with 7."""
    with psycopg.connect(database18, autocommit=True) as connection:
        connection.execute(_WARNS)
    return database18


@pytest.fixture
def quoted(tmp_path: Path) -> Path:
    """Provide a file of which quotes will be dropped, on line 3."""
    return write_to(tmp_path / "quoted.csv", 'a,b\n1,x\n2,y "z"\n')


@pytest.fixture
def numbers(tmp_path: Path) -> Path:
    """Provide a file that is not warned of before it is loaded."""
    return write_to(tmp_path / "numbers.csv", "a,b\n" + "".join(f"{number},x\n" for number in range(20)))


def count(database: str, table: str = "t") -> int:
    """Return how many rows a table has."""
    with psycopg.connect(database) as connection:
        ((found,),) = connection.execute(f"SELECT count(*) FROM {table}").fetchall()
    return int(found)


@pytest.mark.part("rest")
def test_warnings_stand_in_json_and_on_a_quiet_standard_error(penstock: Run, database: str, quoted: Path) -> None:
    """Of a plan, a check and a load: what is not known is null."""
    hint = "Use --format=tsv if quotes are data, or --quote with a character that is not in the file."
    item = {"code": "quote-dropped", "message": _MESSAGE, "hint": hint, "file": str(quoted), "line": 3, "record": None}
    for options in (("--plan",), ("--check",), ()):
        finished = penstock("load", str(quoted), "--into", "t", "--json", "--quiet", *options, "--to", database)
        assert (finished.code, finished.object["warnings"]) == (0, [item])
        assert (f"warning: {_MESSAGE}" in finished.err) == ("--plan" not in options)
    quiet = penstock("load", str(quoted), "--into", "t", "--quiet", "--again", "--to", database)
    assert quiet.out == ""
    assert quiet.err.startswith(f"warning: {_MESSAGE}\nDETAIL:  {quoted} line 3, column 2.\nHINT:  ")


def test_warnings_of_server_and_command_line_are_items_too(penstock: Run, database: str, numbers: Path) -> None:
    """Where there is no file, none is named; and also where the load then failed."""
    finished = penstock("load", str(numbers), str(numbers), "--into", "w", "--json", "--to", f"{database} password=x")
    assert [(item["code"], item["file"], item["line"]) for item in finished.object["warnings"]] == [
        ("secret-visible", None, None),
        ("repeated-source", str(numbers), None),
        ("server", None, None),
    ]
    numbers.write_text("a,b\n7,x\nz,y\n")
    failed = penstock("load", str(numbers), "--into", "w", "--changed", "load", "--json", "--to", database)
    assert (failed.code, failed.object["state"]) == (5, "failed")
    assert [item["message"] for item in failed.object["warnings"]] == ["WARNING: mind 7"]


def test_outcome_has_the_warnings(database: str, quoted: Path, numbers: Path) -> None:
    """Of a library's load and check, the plan's before the load's own."""
    outcome = load(str(quoted), into="t", to=database)
    assert [(warning.code, warning.uri, warning.line) for warning in outcome.warnings] == [
        ("quote-dropped", str(quoted), 3)
    ]
    assert [warning.code for warning in load(str(numbers), into="w", to=database).warnings] == ["server"]
    with Loader(connect_to(database)) as loader:
        plan = loader.plan(LoadJob(targets=(target(quoted),)))
        assert loader.check(plan).warnings == plan.notices


def test_check_counts_warnings(penstock: Run, database: str, quoted: Path, numbers: Path) -> None:
    """And says that there is no problem only where there is nothing at all."""
    warned = penstock("load", str(quoted), "--into", "t", "--check", "--to", database)
    assert (warned.code, "no problem" in warned.out) == (0, False)
    assert ": 1 warning, nothing loaded on " in warned.out
    fine = penstock("load", str(numbers), "--into", "t", "--check", "--to", database)
    assert ": no problem found, nothing" in fine.out


@pytest.mark.parametrize("action", ["--plan", "--check", "--json"])
def test_warning_that_is_an_error_begins_nothing(
    penstock: Run, database: str, quoted: Path, tmp_path: Path, action: str
) -> None:
    """From the command line and from a job file; the ledger is not even made."""
    job = write_to(tmp_path / "job.toml", f'warnings = "error"\n[[target]]\nsources = "{quoted}"\ninto = "t"\n')
    for arguments in ((str(quoted), "--into", "t", "--warnings", "error"), (str(job),)):
        finished = penstock("load", *arguments, action, "--to", database)
        assert (finished.code, count(database)) == (2, 0)
        if action != "--plan":
            assert f"error: {_MESSAGE}" in finished.err
            assert "With --warnings error this is an error" in finished.err
    with psycopg.connect(database) as connection:
        assert connection.execute("SELECT to_regnamespace('penstock')").fetchone() == (None,)


def test_visible_secret_is_an_error_too(penstock: Run, database: str, numbers: Path) -> None:
    """What the command itself warns of."""
    arguments = ("load", str(numbers), "--into", "t", "--warnings", "error")
    finished = penstock(*arguments, "--to", f"{database} password=x")
    assert (finished.code, count(database)) == (2, 0)
    assert penstock(*arguments, "--to", database).code == 0


@pytest.mark.part("rest")
def test_warning_of_the_stream_ends_the_load(penstock: Run, database: str, numbers: Path) -> None:
    """The batch that it came with is rolled back, and the error says what stays."""
    arguments = ("load", str(numbers), "--into", "w", "--warnings", "error", "--to", database)
    for options in ((), ("--atomic",), ("--on-error", "reject"), ("--mode", "truncate", "--atomic")):
        finished = penstock(*arguments, *options)
        assert (finished.code, count(database, "w")) == (2, 0)
        assert "error: WARNING: mind 7" in finished.err
        # What is merged at the end waits for it in a staging table.
        assert ("No table was changed" if "--mode" in options else "No rows were loaded.") in finished.err


def test_batches_before_a_warning_stay(database: str, numbers: Path) -> None:
    """Resumed without the rule, the load is complete with each row once."""
    loads = Loads(database, piece_bytes=9)
    strict = LoadRules(retry_for=0.0, warnings="error")
    with pytest.raises(UsageError, match="mind 7") as caught:
        loads.run(target(numbers, into="w"), sessions=1, rules=strict, batch_bytes=1)
    stayed = count(database, "w")
    assert 0 < stayed < 8
    assert f"{stayed} rows are committed in load" in (caught.value.detail or "")
    loads.run(target(numbers, into="w"), sessions=1)
    assert count(database, "w") == 20


def test_warning_behind_the_last_row_is_told_by_the_exit_code(penstock: Run, database: str, numbers: Path) -> None:
    """The load is complete, and its result says so."""
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("CREATE TABLE v (a int, b text)")
        connection.execute(
            "CREATE ROLE clerk LOGIN; GRANT INSERT, SELECT ON v TO clerk; GRANT CREATE ON DATABASE "
            f"{connection.info.dbname} TO clerk"
        )
    try:
        options = ("--warnings", "error", "--json", "--to", make_conninfo(database, user="clerk"))
        finished = penstock("load", str(numbers), "--into", "v", *options)
        assert (finished.code, finished.object["state"], count(database, "v")) == (2, "complete", 20)
        assert [item["code"] for item in finished.object["warnings"]] == ["upkeep"]
    finally:
        with psycopg.connect(database, autocommit=True) as connection:
            connection.execute("DROP OWNED BY clerk CASCADE; DROP ROLE clerk")


def test_first_thousand_warnings_are_kept() -> None:
    """A trigger may warn of each of a million rows."""
    shown: list[Notice] = []
    heard = WarningLog(shown.append)
    for number in range(3000):
        heard.warn("server", f"WARNING: {number}")
    assert tuple(shown) == heard.notices
    assert [notice.code for notice in heard.notices] == ["server"] * 1000 + ["more"]


_ODD = {"--delimiter": "\\t", "--set": "src=it's {filename}", "--skip": "left out", "--quote": "'", "--skip-lines": "1"}


@pytest.mark.part("rest")
@pytest.mark.parametrize(
    ("name", "text", "options"),
    [
        ("a.csv", "id,n\n1,2\n2,NA\n,3\n", ()),
        ("it's a.csv", "# of today\nid\tn\tleft out\n1\t2\t'x'\n2\tNA\t''\n\t3\t\n", [*sum(_ODD.items(), ())]),
        ("q.csv", 'id,n\n1,"2"\n2,"NA"\n3,"3"\n', ("--null", "NA")),
        ("m.csv", "id,n\n1,2\n2,NA\n3,3\n", ("--mode", "upsert", "--key", "id")),
        ("c.csv", "1,2\n2,NA\n,3\n", ("--no-header", "--columns", "id,n", "--on-error", "reject")),
    ],
)
@pytest.mark.parametrize("into", ["made", 'own."Odd name"'])
def test_hint_of_a_word_for_null_is_the_command_that_loads_it_as_null(
    database18: str, tmp_path: Path, penstock: Run, name: str, text: str, options: tuple[str, ...], into: str
) -> None:
    """As it stands, also if the load whose warning has it has stored the rows already."""
    path = write_to(tmp_path / name, text)
    command = ["load", str(path), "--into", into, "--create", "--types", "infer", *options, "--to", database18]
    warned = penstock(*command)
    assert warned.code == 0, warned.err
    (hint,) = re.findall(r"^HINT:.*?(penstock load .*)$", warned.err, re.MULTILINE)
    assert penstock(*command).out.startswith("nothing to load")
    done = penstock(*shlex.split(hint)[1:])
    assert (done.code, "literal-null" in done.err, "HINT" in done.err) == (0, False, False), done.err
    with psycopg.connect(database18) as connection:
        rows = connection.execute(f"SELECT id, n FROM {into} ORDER BY n".encode()).fetchall()
    assert rows == [(1, 2), (3 if name in ("m.csv", "q.csv") else None, 3), (2, None)]
