"""`penstock settings` and `penstock load --settings`, as a user runs them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from penstock.cli.main import main
from penstock.core.catalogue.settings import LeaseReport
from penstock.settings.decide import BULK_LOAD
from penstock.settings.refusals import REFUSALS
from penstock.settings.view import describe_report

if TYPE_CHECKING:
    from collections.abc import Callable

    from support.changed_server import ChangedServer


@pytest.fixture
def penstock(capfd: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Provide a function (*arguments) that runs the command line and returns exit code, results and messages."""

    def run(*arguments: str) -> tuple[int, str, str]:
        code = main(arguments)
        return (code, *capfd.readouterr())

    return run


def test_profiles_tell_reason_source_and_cost(penstock: Callable[..., tuple[int, str, str]]) -> None:
    """No server is asked."""
    code, out, _ = penstock("settings", "profiles")
    assert code == 0
    for value in BULK_LOAD.values:
        assert value.name in out
        assert value.source in out
    assert "replays the WAL" in out
    found = json.loads(penstock("settings", "profiles", "--json")[1])["profiles"][0]["values"]
    assert "aurora" not in found[0]["flavours"]


def test_documents_name_all_that_is_never_done(penstock: Callable[..., tuple[int, str, str]]) -> None:
    """On the page and on the screen."""
    page = (Path(__file__).parents[2] / "docs" / "settings.md").read_text()
    shown = penstock("settings", "profiles")[1]
    for refusal in REFUSALS:
        assert refusal.name in page.lower().replace("multi-az", "multi_az")
        assert refusal.deed in shown
        assert refusal.reason[:60] in shown


@pytest.mark.part("rest")
def test_apply_and_restore(changed18: ChangedServer, penstock: Callable[..., tuple[int, str, str]]) -> None:
    """What diff announces is done, listed and put back."""
    before = changed18.snapshot()
    to = ("--to", changed18.conninfo)
    assert "max_wal_size" in penstock("settings", "diff", *to)[1]
    code, out, err = penstock("settings", "apply", "--for", "2h", *to)
    assert code == 0
    assert "1GB" in out
    assert "crash recovery takes longer" in err
    shown = json.loads(penstock("settings", "show", "--json", *to)[1])
    assert {one["name"]: one["value"] for one in shown["settings"]}["checkpoint_timeout"] == "1800"
    (lease,) = json.loads(penstock("settings", "leases", "--json", *to)[1])["leases"]
    assert (lease["state"], lease["reason"]) == ("active", "penstock settings apply (bulk-load)")
    assert lease["lease_id"][:8] in penstock("settings", "leases", *to)[1]
    assert penstock("settings", "restore", "ffff", *to)[0] == 6
    assert penstock("settings", "restore", lease["lease_id"][:8], *to)[0] == 0
    assert changed18.snapshot() == before
    assert penstock("settings", "restore", *to)[1] == "nothing to restore\n"


def test_settings_by_name(changed18: ChangedServer, penstock: Callable[..., tuple[int, str, str]]) -> None:
    """Only what is larger than it is."""
    to = ("--to", changed18.conninfo)
    _, out, err = penstock("settings", "apply", "max_wal_size=2GB", "checkpoint_timeout=60s", *to)
    assert out.split() == ["max_wal_size", "1GB", "->", "2GB"]
    assert "checkpoint_timeout is not changed: it is 5min" in err
    penstock("settings", "restore", *to)


@pytest.mark.parametrize("text", ["fsync=off", "autovacuum=off", "wal_level=minimal", "bulk", "work_mem=1GB"])
def test_refused(penstock: Callable[..., tuple[int, str, str]], text: str) -> None:
    """Before any server is asked."""
    code, _, err = penstock("settings", "apply", text, "--to", "host=/nowhere")
    assert code == 2
    assert "HINT" in err


def test_load_tells_settings(
    changed18: ChangedServer, tmp_path: Path, penstock: Callable[..., tuple[int, str, str]]
) -> None:
    """The plan what would be leased, the outcome what was."""
    path = tmp_path / "told.csv"
    path.write_text("a,b\n1,x\n")
    load = ("load", str(path), "--into", "told", "--create", "--to", changed18.conninfo)
    plan = penstock(*load, "--settings", "bulk-load", "--plan")[1]
    assert "settings  bulk-load" in plan
    assert "checkpoint_completion_target is not changed" in plan
    small: Any = json.loads(penstock(*load, "--settings", "auto", "--plan", "--json")[1])["steps"]["settings"]
    assert "too small" in small["reason"]
    assert "settings" not in json.loads(penstock(*load, "--plan", "--json")[1])["steps"]
    out = penstock(*load, "--settings", "bulk-load")[1]
    assert ["checkpoint_timeout", "5min", "30min", "5min"] in [line.split() for line in out.splitlines()]
    code, _, err = penstock(*load, "--settings", "fast")
    assert code == 2
    assert "none, auto or bulk-load" in err


@pytest.mark.parametrize("options", [("--shared-group",), ("--settings", "auto", "--check")])
def test_options_that_would_mean_nothing_are_refused(
    penstock: Callable[..., tuple[int, str, str]], options: tuple[str, ...]
) -> None:
    """Before any server is asked."""
    assert penstock("load", "x.csv", "--into", "t", "--to", "host=/nowhere", *options)[0] == 2


def test_nothing_done_is_told() -> None:
    """In words."""
    assert describe_report(LeaseReport()) == ["nothing to restore"]
