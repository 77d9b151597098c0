"""What is wrong with the arguments is said in psql's form, with exit code 2, and no secret is repeated."""

from __future__ import annotations

import gzip
import json
import platform
import re
import subprocess
import sys
from typing import TYPE_CHECKING

import psycopg
import pytest

from penstock import __version__
from penstock.cli import main as main_module
from penstock.ledger.schema import VERSION
from support.command import run_process

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from support.command import Finished

    Run = Callable[..., Finished]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["lod"], 'unknown command "lod"\nHINT:  Perhaps you meant: penstock load.'),
        (["load", "a.csv", "--table", "t"], "no such option: --table\nHINT:  Perhaps you meant --into."),
        (["load", "a.csv", "--tabel", "t"], "no such option: --tabel\nHINT:  Perhaps you meant --into."),
        (["load", "a.csv", "--dbname", "d"], "no such option: --dbname\nHINT:  Perhaps you meant --to."),
        (["load", "a.csv", "--sep", ";"], "no such option: --sep\nHINT:  Perhaps you meant --delimiter."),
        (["load", "a.csv", "--jobs", "4"], "no such option: --jobs\nHINT:  Perhaps you meant --sessions."),
        (["load", "a.csv", "--dry-run"], "no such option: --dry-run\nHINT:  Perhaps you meant --plan."),
        (["load", "a.csv", "--indices", "keep"], "no such option: --indices\nHINT:  Perhaps you meant --indexes."),
        (["load", "a.csv", "--wherever", "t"], "no such option: --wherever\nHINT:  See penstock load --help."),
        (["loads", "--table", "t"], "no such option: --table\nHINT:  Perhaps you meant --into."),
        (["load"], "no source to load"),
        (["load", "a.csv"], "no table to load into"),
        (["load", "a.csv", "b.toml"], "no table to load into"),
        (["load", "a.csv", "--into", "t", "--colums", "a"], "no such option: --colums"),
        (["load", "a.csv", "--into"], "option --into requires an argument"),
        (["load", "a.csv", "--into", "a.b.c"], '"a.b.c" is not a table name'),
        (["load", "a.csv", "--into", "staging."], '"staging." is not a table name'),
        (["load", "a.csv", "--into", "t", "--format", "tab"], 'invalid value "tab" for --format'),
        (["load", "a.csv", "--into", "t", "--set", "x"], "invalid value for --set"),
        (["load", "a.csv", "--into", "t", "--set", "x=1", "--set", "x=2"], "invalid value for --set"),
        (["load", "a.csv", "--into", "t", "--columns", "a,,b"], 'invalid value "a,,b" for --columns'),
        (["load", "a.csv", "--into", "t", "--sessions", "0"], 'invalid value "0" for --sessions'),
        (["load", "a.csv", "--into", "t", "--changed", ""], 'invalid value "" for --changed'),
        (["load", "a.csv", "--into", "t", "--key", ","], 'invalid value "," for --key'),
        (["load", "a.csv", "--into", "t", "--retry-for", "soon"], 'invalid value "soon" for --retry-for'),
        (["load", "a.csv", "--into", "t", "--max-record", "1"], 'invalid value "1" for --max-record'),
        (["load", "a.csv", "--into", "t", "--max-record", "2GB"], 'invalid value "2GB" for --max-record'),
        (["load", "a.csv", "--into", "t", "--plan", "--check"], "--plan and --check cannot be used together"),
        (["load", "a.csv", "--into", "t", "--to", "x", "--pg-bin", "y"], "--pg-bin is for the embedded server only"),
        (["load", "job.toml", "--into", "t"], "--into cannot be used with a job file"),
        (["resume"], "missing argument 'ID|latest'"),
        (["resume", "0a1b2c3d", "4e5f6a7b"], "got unexpected extra argument(s) (4e5f6a7b)"),
        (["server", "stop", "--mode", "bogus"], "invalid value for --mode: "),
        (["demo", "--scale", "0"], "scale must be greater than zero"),
        (["server", "halt"], "no such command 'halt'"),
    ],
)
def test_usage_error_exits_with_2(penstock: Run, arguments: list[str], message: str) -> None:
    """The message comes first, a hint follows, and standard output stays empty."""
    finished = penstock(*arguments)
    assert finished.code == 2
    assert finished.err.startswith(f"error: {message}")
    assert "\nHINT:  " in finished.err
    assert finished.out == ""


def test_usage_error_is_an_object_with_json(penstock: Run) -> None:
    """Who asked for JSON finds the error in it too."""
    finished = penstock("load", "a.csv", "--json")
    assert finished.object["state"] == "failed"
    assert finished.object["error"]["message"] == "no table to load into"
    assert finished.err.startswith("error: no table to load into")


def test_version(penstock: Run) -> None:
    """The package's own, in one line, for which nothing of the database is imported."""
    assert penstock("--version").out == f"penstock {__version__}\n"
    program = "import sys\nfrom penstock.cli.main import main\nmain(['--version'])\nprint('psycopg' in sys.modules)"
    shown = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert shown == f"penstock {__version__}\nFalse\n"


@pytest.mark.parametrize("arguments", [("--version", "--json"), ("--json", "--version")])
def test_versions_as_an_object_are_what_a_report_needs(penstock: Run, arguments: tuple[str, ...]) -> None:
    """Each is known where the tests run, and none names this host or its user."""
    found = penstock(*arguments).object
    assert (found["penstock"], found["ledger"]) == (__version__, VERSION)
    assert found["psycopg"].startswith(f"{psycopg.__version__} (")
    assert all(re.match(r"\d+\.", found[name]) for name in ("python", "libpq", "embedded_server", "kernel", "glibc"))
    assert found["machine"] != "x86_64" or {"sse4.2", "popcnt"} <= set(found["cpu_features"])
    assert found["os"]
    assert platform.node() not in json.dumps(found)


def test_json_before_a_command_is_refused(penstock: Run) -> None:
    """It would be lost there."""
    finished = penstock("--json", "loads")
    assert (finished.code, finished.object["error"]["message"]) == (2, "--json before a command is for --version")


def test_password_in_conninfo_is_warned_of_and_not_repeated(penstock: Run, tmp_path: Path) -> None:
    """Neither the warning nor the failure to connect shows it."""
    target = f"postgresql://ann:s3cret@%2F{str(tmp_path)[1:].replace('/', '%2F')}/db"
    finished = penstock("load", "a.csv", "--into", "t", "--to", target)
    assert finished.code == 7
    assert finished.err.startswith("warning: every user of this machine can read the password in --to")
    assert "s3cret" not in finished.err


def test_unreadable_conninfo_is_not_repeated(penstock: Run) -> None:
    """What libpq cannot read may be a password all the same."""
    finished = penstock("load", "a.csv", "--into", "t", "--to", "host=x pasword=s3cret", "--json")
    assert finished.code == 2
    assert "s3cret" not in finished.err + finished.out
    assert "***" not in finished.err


@pytest.mark.parametrize("value", ["ann:s3cret@localhost:6000", "ann:s3cret@localhost", "ssh://ann:s3cret@host:22/x"])
def test_user_name_in_tunnel_is_refused_and_not_repeated(penstock: Run, value: str) -> None:
    """Whoever types one may have typed a password."""
    finished = penstock("loads", "--to", "host=db.example.com", "--tunnel", value, "--json")
    assert finished.code == 2
    assert "localhost:PORT" in finished.object["error"]["hint"]
    assert "s3cret" not in finished.err + finished.out


@pytest.mark.parametrize("name", ["missing.csv", "missing*.csv", "cut.csv.gz", "job.toml"])
def test_error_of_a_file_names_it_in_json(penstock: Run, database18: str, tmp_path: Path, name: str) -> None:
    """One that does not exist, a pattern that matches none, and one that cannot be read to its end."""
    (tmp_path / "cut.csv.gz").write_bytes(gzip.compress(b"a,b\n1,2\n")[:-9])
    path = str(tmp_path / name)
    options = [] if name == "job.toml" else ["--into", "t", "--create"]
    finished = penstock("load", path, *options, "--to", database18, "--json")
    assert (finished.code, finished.object["error"]["file"]) == (4, path)


def test_interrupt_exits_with_130(penstock: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a message, and no traceback."""

    def interrupt(_arguments: list[str]) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(main_module, "_run", interrupt)
    finished = penstock("load")
    assert finished.code == 130
    assert finished.err == "error: interrupted\n"


def test_fault_of_ours_exits_with_70_and_traceback(penstock: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """What we did not foresee is to be reported as it is."""

    def fail(_arguments: list[str]) -> int:
        raise ZeroDivisionError("unforeseen")

    monkeypatch.setattr(main_module, "_run", fail)
    finished = penstock("load")
    assert finished.code == 70
    assert "ZeroDivisionError: unforeseen" in finished.err


def test_closed_output_ends_quietly() -> None:
    """As in `penstock ... | head -1`, whose reader has gone before the end."""
    shell = f"{sys.executable} -m penstock --version; echo $? >&2"
    reader = subprocess.Popen(["true"], stdin=subprocess.PIPE)
    reader.wait()
    finished = subprocess.run(["sh", "-c", shell], stdout=reader.stdin, stderr=subprocess.PIPE, text=True, check=False)
    assert reader.stdin is not None
    reader.stdin.close()
    assert finished.stderr == "141\n"


@pytest.mark.part("rest")
@pytest.mark.parametrize("redirection", [">/dev/full", ">&-"])
@pytest.mark.parametrize("arguments", ["--version", "--help", "server status --json"])
def test_output_that_cannot_be_written_is_one_error(redirection: str, arguments: str) -> None:
    """A full disk or a closed descriptor is no fault of ours."""
    command = f"{sys.executable} -m penstock {arguments} {redirection}"
    finished = subprocess.run(["sh", "-c", command], stderr=subprocess.PIPE, text=True, check=False)
    assert finished.returncode == 1
    assert finished.stderr.startswith("error: could not write to standard output: ")
    assert finished.stderr.count("\n") == 1


def test_error_that_cannot_be_told_keeps_its_exit_code() -> None:
    """What runs penstock learns from it what went wrong."""
    command = f"{sys.executable} -m penstock load a.csv 2>/dev/full"
    assert subprocess.run(["sh", "-c", command], check=False).returncode == 2


def test_messages_have_no_colours_without_terminal() -> None:
    """Escape sequences do not belong into logs."""
    assert "\x1b" not in run_process("load", "a.csv").err


def test_fault_of_ours_is_an_object_too_and_tells_no_secret(penstock: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """For those who asked for JSON; the traceback is for standard error."""

    def fail(*_: object) -> None:
        raise RuntimeError("host=db1 password=s3cret")

    monkeypatch.setattr(main_module, "load_command", fail)
    finished = penstock("loads", "--json")
    assert finished.code == 70
    assert finished.object["error"]["message"] == "internal error, please report"
    assert "RuntimeError: host=db1 password=***" in finished.err
    assert "s3cret" not in finished.err
