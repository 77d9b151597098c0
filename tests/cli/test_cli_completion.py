"""Shells complete commands, options and their words."""

from __future__ import annotations

import os
import select
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from support.command import run_process

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
