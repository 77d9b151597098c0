"""Shells complete commands, options, values, tables and loads."""

from __future__ import annotations

import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
import pytest

from support.command import run_process

if TYPE_CHECKING:
    from collections.abc import Callable

    from support.command import Finished

_BIN = Path(sys.executable).parent


def offered(line: str, **variables: str) -> list[str]:
    """Return what bash is offered for the last word of a line."""
    asking = {"_PENSTOCK_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(line.count(" "))}
    finished = run_process(environment=asking | variables)
    assert (finished.code, finished.err) == (0, ""), finished.err
    return finished.out.split()


@pytest.mark.part("rest")
def test_commands_options_and_words_are_offered() -> None:
    """Each by its beginning."""
    assert offered("penstock lo") == ["load", "loads"]
    assert offered("penstock loads p") == ["prune"]
    assert offered("penstock load --reject") == ["--reject-file"]
    assert offered("penstock load --mode ") == ["append", "truncate", "replace", "upsert", "insert-new", "sync"]
    assert offered("penstock load --sessions ") == ["auto"]


def test_files_are_left_to_the_shell() -> None:
    """It completes them if nothing is offered: sources and job files."""
    assert offered("penstock load jo") == []


@pytest.mark.part("rest")
def test_tables_are_offered_as_sql_spells_them(database18: str) -> None:
    """Those of the database that is named, but not the ledger's."""
    with psycopg.connect(database18, autocommit=True) as connection:
        connection.execute('CREATE TABLE orders (); CREATE SCHEMA "Old"; CREATE TABLE "Old"."order lines" ()')
        connection.execute("CREATE SCHEMA penstock; CREATE TABLE penstock.loads ()")
    words = ["penstock", "load", "--to", f"'{database18}'", "--into", ""]
    asking = {"_PENSTOCK_COMPLETE": "complete_bash", "COMP_WORDS": " ".join(words), "COMP_CWORD": "5"}
    shown = run_process(environment=asking).out.splitlines()
    assert shown == ['"Old"."order lines"', "orders", "public.orders"]


@pytest.mark.part("rest")
def test_loads_are_offered_newest_first(database18: str, tmp_path: Path, penstock: Callable[..., Finished]) -> None:
    """To commands that take a load's id; `latest` to those for which it means a load."""
    ids = []
    for name in ("a", "b"):
        path = tmp_path / f"{name}.csv"
        path.write_text("x,y\n1,2\n")
        loaded = penstock("load", str(path), "--into", name, "--create", "--to", database18, "--json")
        ids.append(loaded.object["load_id"])
    environment = {"PENSTOCK_HOME": str(tmp_path / "home"), "PGSERVICEFILE": str(tmp_path / "services")}
    (tmp_path / "services").write_text("[db]\n" + "\n".join(database18.split()))
    assert offered("penstock loads show --to service=db ", **environment) == ["latest", *ids[::-1]]
    assert offered("penstock rejects --to service=db ", **environment) == ["latest", *ids[::-1]]
    assert offered("penstock resume --to service=db l", **environment) == ["latest"]
    assert offered("penstock verify --to service=db l", **environment) == ["latest"]
    assert offered(f"penstock resume --to service=db {ids[0][:12]}", **environment) == ids[:1]


@pytest.mark.part("rest")
def test_no_server_is_started_and_no_error_printed(tmp_path: Path) -> None:
    """What is typed stays as it is if no server runs, or one refuses."""
    home = tmp_path / "home"
    without = {"PENSTOCK_HOME": str(home), "PGHOST": "", "PGSERVICE": ""}
    assert offered("penstock loads show ", **without) == ["latest"]
    assert not home.exists()
    assert offered(f"penstock loads show --to host={tmp_path} ") == ["latest"]


@pytest.mark.part("rest")
def test_silent_server_is_not_waited_for() -> None:
    """The kernel accepts the connection, and no answer ever comes: without a limit this test would hang."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        to = f"postgresql://127.0.0.1:{listener.getsockname()[1]}/x?connect_timeout=0"
        assert offered(f"penstock loads show --to {to} ") == []


@pytest.mark.part("rest")
def test_interrupt_while_a_server_is_asked_prints_nothing() -> None:
    """A traceback would be printed into the line that is being typed."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        to = f"postgresql://127.0.0.1:{listener.getsockname()[1]}/x?connect_timeout=0"
        asking = {
            "_PENSTOCK_COMPLETE": "complete_bash",
            "COMP_WORDS": f"penstock loads show --to {to} ",
            "COMP_CWORD": "5",
        }
        command = [str(_BIN / "penstock")]
        with subprocess.Popen(
            command, env=os.environ | asking, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        ) as process:
            # It has connected, so it waits for an answer.
            connection, _ = listener.accept()
            with connection:
                process.send_signal(signal.SIGINT)
                out, _ = process.communicate(timeout=60)
    assert out == b""
    assert process.returncode == -signal.SIGINT


@pytest.mark.part("rest")
@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shells_complete_after_the_installation(shell: str, tmp_path: Path) -> None:
    """In an interactive shell Tab completes a word, after `penstock --install-completion` in that shell."""
    program = shutil.which(shell)
    if program is None:
        packages = {"zsh": "(Debian's package zsh)", "fish": "(Debian's package fish)"}
        pytest.skip(f"{shell} is not installed {packages.get(shell, '')}")
    environment = {
        "HOME": str(tmp_path),
        "PATH": f"{_BIN}:/usr/bin:/bin",
        "TERM": "xterm",
        "PENSTOCK_HOME": str(tmp_path / "home"),
    }
    install = subprocess.run(
        [program, "-c", "penstock --install-completion; true"],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert "installed" in install.stdout, install.stderr
    if shell == "fish":
        asked = [program, "-c", "complete -C 'penstock load --mode inser'"]
        shown = subprocess.run(asked, env=environment, capture_output=True, text=True, check=True).stdout
    else:
        shown = _press_tab(program, "penstock load --mode inser", environment)
    assert "t-new" in shown


def _press_tab(program: str, line: str, environment: dict[str, str]) -> str:
    """Type a line and Tab into an interactive shell; return what the terminal shows until the word is complete.

    Tab is pressed again meanwhile: the first one of a zsh only loads the completion.
    """
    argv = ["script", "--quiet", "--return", "--command", f"{program} -i", "/dev/null"]
    with subprocess.Popen(argv, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as shell:
        assert shell.stdin is not None
        assert shell.stdout is not None
        shown, typed, until_s = b"", line.encode(), time.monotonic() + 60
        while time.monotonic() < until_s and b"t-new" not in shown:
            if select.select([shell.stdout], [], [], 1.0)[0]:
                shown += os.read(shell.stdout.fileno(), 4096)
            else:
                # Nothing came for a second: the prompt is there.
                shell.stdin.write(typed + b"\t")
                shell.stdin.flush()
                typed = b""
        shell.kill()
    return shown.decode(errors="replace")
