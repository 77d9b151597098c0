"""What penstock never does is refused with the reason, however it is asked for."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from penstock.settings.refusals import explain_refusal

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from support.command import Finished

    Run = Callable[..., Finished]


@pytest.mark.parametrize(
    ("option", "what"),
    [
        ("--unlogged", "make tables unlogged"),
        ("--no-fsync", "turn fsync off"),
        ("--full-page-writes=off", "turn full_page_writes off"),
        ("--disable-replication", "turn replication off"),
        ("--no-multi-az", "turn Multi-AZ off"),
        ("--synchronous-commit=off", "turn synchronous_commit off beyond its own transactions"),
        ("--no-autovacuum", "turn autovacuum off beyond the table that is loaded"),
        ("--wal-level=minimal", "set wal_level to minimal"),
    ],
)
def test_option_that_asks_for_it_is_refused_with_the_reason(penstock: Run, option: str, what: str) -> None:
    """Not as an option that is not there."""
    finished = penstock("load", "a.csv", "--into", "t", option)
    assert (finished.code, finished.out) == (2, "")
    assert finished.err.startswith(f"error: penstock does not {what}\nDETAIL:  ")


@pytest.mark.parametrize("key", ["unlogged", "fsync", "disable_replication"])
@pytest.mark.parametrize("place", ["top", "target"])
def test_key_of_a_job_file_that_asks_for_it_is_refused(penstock: Run, tmp_path: Path, key: str, place: str) -> None:
    """At the top, and in a target."""
    setting = f"{key} = true\n"
    job = tmp_path / "job.toml"
    job.write_text(
        (setting if place == "top" else "")
        + '[[target]]\nsources = "a.csv"\ninto = "t"\n'
        + (setting if place == "target" else "")
    )
    finished = penstock("load", str(job))
    assert finished.code == 2
    assert re.match(r'error: job file ".*": (top level|target 1): penstock does not ', finished.err)


def test_other_unknown_options_are_merely_unknown(penstock: Run) -> None:
    """A mistake in spelling is no wish."""
    assert penstock("load", "a.csv", "--into", "t", "--unlocked").err.startswith("error: no such option: --unlocked")
    assert explain_refusal("--no-wait") is None


def test_autovacuum_is_paused_and_not_turned_off(penstock: Run) -> None:
    """Neither everywhere nor for good."""
    finished = penstock("load", "a.csv", "--into", "t", "--autovacuum", "off")
    assert finished.code == 2
    assert "Use keep or pause." in finished.err
