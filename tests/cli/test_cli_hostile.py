"""What others write (names, data, headers, servers, ledger rows) is printed visibly: no terminal obeys it."""

from __future__ import annotations

import json
import re
from io import StringIO
from typing import TYPE_CHECKING

import psycopg
import pytest
from rich.console import Console

from penstock.cli.output import Messages, write_result
from penstock.core.values.accounts import StepProgress
from penstock.core.values.diagnosis import Diagnosis
from penstock.loading.command.bars import Bars
from penstock.loading.values.outcome import FileProgress, LoadProgress
from penstock.preflight.command import render
from support.files import write_to

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from support.command import Finished

    Run = Callable[..., Finished]

# All that a terminal would obey but newline and tab, which penstock's own lines have.
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
EVIL = "e\x1b[31m\x07\r\x7f\x9b2J\u202e\u2066l"
SHOWN = r"e\x1b[31m\x07\r\x7f\x9b2J\u202e\u2066l"

_BOOM = r"""
CREATE FUNCTION boom() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  RAISE WARNING E'w\x1b[31mwarn\u009b\nHINT:  faked';
  RAISE EXCEPTION E'bad\x1b[2Jthing\nloaded 7 rows' USING DETAIL = E'det\x1b]0;x\x07', HINT = E'h\x1b[1m\u202e';
END $$;
CREATE TABLE tt (id int, v text);
CREATE TRIGGER b BEFORE INSERT ON tt FOR EACH ROW EXECUTE FUNCTION boom();
CREATE TABLE t (id int, v text);
"""


@pytest.fixture
def hostile(penstock: Run, database18: str) -> Run:
    """Provide a function (*arguments) that runs a command there and holds what it prints against CONTROL."""
    with psycopg.connect(database18, autocommit=True) as connection:
        connection.execute(_BOOM)

    def run(*arguments: str) -> Finished:
        finished = penstock(*arguments, "--to", database18)
        found = CONTROL.search(finished.err + ("" if "--json" in arguments else finished.out))
        assert found is None, (arguments, found)
        if "--json" in arguments:
            json.loads(finished.out)
        return finished

    return run


@pytest.mark.part("rest")
def test_no_command_prints_what_a_terminal_obeys(hostile: Run, database18: str, tmp_path: Path) -> None:
    """File names, values, headers, options, a server's messages, and the ledger's rows, by whatever reads them."""
    good = write_to(tmp_path / f"{EVIL}\n.csv", "id,v\n1,a\n")
    bad = write_to(tmp_path / f"bad{EVIL}.csv", f'id,v\n"x{EVIL}\n",a\n')
    header = write_to(tmp_path / "header.csv", f'id,"v{EVIL}\n"\n1,a\n')
    torn = write_to(tmp_path / f"torn{EVIL}.csv.gz", b"\x1f\x8b\x08garbage")
    plain = write_to(tmp_path / "plain.csv", "id,v\n1,a\n2,b\n")
    rejecting = ("--on-error", "reject")
    assert hostile("load", str(good), "--into", "t").code == 0
    hostile("load", str(good), "--into", "t", "--again", "--json")
    hostile("load", str(good), str(plain), "--into", "t", "--again")
    assert SHOWN in hostile("load", str(good), "--into", "t", "--again", "--plan").out
    for options in ((), ("--plan",), ("--check",), ("--json",), rejecting):
        for path, table in ((bad, "t"), (header, "t"), (torn, "t"), (plain, "tt"), (tmp_path / f"no{EVIL}", "t")):
            hostile("load", str(path), "--into", table, *options)
    hostile("load", str(good), "--into", f'"no{EVIL}"')
    hostile("load", str(good), "--into", "t", "--skip", f"z{EVIL}", "--format", EVIL)
    hostile("load", str(good), "--into", "t", "--retry-for", EVIL, f"--{EVIL}")
    with psycopg.connect(database18, autocommit=True) as connection:
        connection.execute("UPDATE penstock.loads SET client = %s", [f"cl{EVIL}\nient"])
        connection.execute("UPDATE penstock.objects SET uri = %s || uri", [f"{EVIL}\n"])
        ids = [row[0] for row in connection.execute("SELECT id::text FROM penstock.loads")]
    for command in (["loads"], ["doctor", "--into", "tt", "--for", str(good)], ["repair", "--plan"]):
        hostile(*command)
        hostile(*command, "--json")
    for load_id in ids:
        for command in (["loads", "show", load_id], ["rejects", load_id], ["retry", load_id], ["resume", load_id]):
            hostile(*command)
    hostile("rejects", EVIL)


def test_servers_message_stays_readable_and_fakes_no_line(hostile: Run, tmp_path: Path) -> None:
    """Its own lines stand in, so that none looks like a line of penstock's."""
    path = write_to(tmp_path / "a.csv", "id,v\n1,a\n")
    finished = hostile("load", str(path), "--into", "tt")
    assert "warning: WARNING: w\\x1b[31mwarn\\x9b\n    HINT:  faked\n" in finished.err
    assert "bad\\x1b[2Jthing\n    loaded 7 rows\n" in finished.err
    assert "HINT:  h\\x1b[1m\\u202e" in finished.err


def test_name_with_a_newline_fakes_no_row_of_a_table(hostile: Run, tmp_path: Path) -> None:
    """Each object of a load has one line."""
    names = [f"a.csv{' ' * 9}9 rows\nb.csv", "c\r.csv", "[red]d.csv"]
    for name in names:
        (tmp_path / name).write_text("id,v\n1,a\n")
    shown = hostile("load", *(str(tmp_path / name) for name in names), "--into", "t").out
    assert len([line for line in shown.splitlines() if "csv" in line]) == 3
    assert "9 rows\\nb.csv" in shown
    assert "c\\r.csv" in shown
    assert "[red]d.csv" in shown


def test_json_has_every_character_as_it_is(capfd: pytest.CaptureFixture[str]) -> None:
    """A program reads it, and JSON has escapes of its own."""
    write_result({"name": EVIL, "\n": "\t"})
    assert json.loads(capfd.readouterr().out) == {"format": 1, "name": EVIL, "\n": "\t"}


def test_result_of_lines_has_as_many_lines(capfd: pytest.CaptureFixture[str]) -> None:
    """Tabs stay."""
    write_result(["a\nb", EVIL, "c\td"])
    assert capfd.readouterr().out == f"a\\nb\n{SHOWN}\nc\td\n"


def test_notes_are_visible(capfd: pytest.CaptureFixture[str]) -> None:
    """What a load says on its way may quote anything."""
    Messages().note(f"truncating {EVIL}\nerror: fake")
    assert capfd.readouterr().err == f"truncating {SHOWN}\n    error: fake\n"


def test_progress_is_visible() -> None:
    """Names of files, of indexes and of what is done, in bars as on lines; nothing in them is rich's markup."""
    file = FileProgress(
        uri="[red]e\x1b\x07\n", table="t", size_bytes=9, bytes_read=3, rows=1, seconds=1.0, is_done=False
    )
    progress = LoadProgress(
        rows=1,
        bytes_read=3,
        bytes_copied=3,
        size_bytes=9,
        elapsed_s=1.0,
        sessions=1,
        files=(file,),
        file_count=1,
        activity=f"act{EVIL}",
        steps=(StepProgress(name=f"index{EVIL}", phase="building", fraction=None),),
    )
    screen = StringIO()
    with Bars(Console(file=screen, width=120, force_terminal=True, color_system=None)) as bars:
        bars.show(progress)
    assert "\x07" not in screen.getvalue()
    assert "[red]e\\x1b\\x07\\n" in screen.getvalue()
    assert EVIL not in screen.getvalue()


def test_screen_of_doctor_is_visible() -> None:
    """Facts, findings and remedies come from the server too."""
    finding = Diagnosis(severity="note", code="x", claim=f"{EVIL}[red]", remedy=f"run {EVIL}\nor not")
    shown = render([("a", f"{EVIL}\nb")], [finding], verdict="Ready to load.", plan=[f"{EVIL}\n"])
    assert CONTROL.search(shown) is None
    assert "[red]" in shown


@pytest.mark.parametrize(
    ("arguments", "secret"),
    [
        (["ann:hunter2@db1/shop", "--into", "t"], "hunter2"),
        (["ann:p/hunter2@db1", "--into", "t"], "hunter2"),
        (["host=h password = hunter2 dbname=x", "--into", "t"], "hunter2"),
        (["password = 'hunter 2' host=h", "--into", "t"], "hunter 2"),
    ],
)
def test_connection_strings_in_the_place_of_sources_are_not_repeated(
    penstock: Run, database18: str, arguments: list[str], secret: str
) -> None:
    """Though they are typed where messages quote what was typed."""
    with psycopg.connect(database18, autocommit=True) as connection:
        connection.execute("CREATE TABLE t (id int)")
    for options in ((), ("--json",)):
        finished = penstock("load", *arguments, *options, "--to", database18)
        assert finished.code == 4
        assert "***" in finished.err
        assert secret not in finished.err + finished.out
