"""What --join and --ray refuse, before anything is changed."""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING

import pytest

from support.loads import Loads

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from support.command import Finished

_TABLES = """
    CREATE TABLE t (a integer PRIMARY KEY, b text);
    CREATE TABLE child (a integer REFERENCES t, b text);
"""


@pytest.fixture
def loads(database18: str) -> Loads:
    """Provide a database with two tables, one of which refers to the other."""
    return Loads(database18, setup=_TABLES)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Provide a file."""
    made = tmp_path / "f.csv"
    made.write_text("a,b\n1,one\n")
    return made


@pytest.mark.parametrize(
    ("options", "what"),
    [
        (("--atomic",), "--atomic"),
        (("--no-wait",), "--no-wait"),
        (("--on-error", "reject", "--max-rejects", "3"), "--max-rejects"),
        (("--add-columns",), "--add-columns"),
        (("--types", "widen"), "--types widen"),
        (("--again",), "--again"),
    ],
)
def test_join_refuses_by_name(
    penstock: Callable[..., Finished], loads: Loads, path: Path, options: tuple[str, ...], what: str
) -> None:
    """With the reason; no ledger is made."""
    refused = penstock("load", str(path), "--into", "t", "--to", loads.conninfo, "--join", *options)
    assert refused.code == 2
    assert f"--join cannot be used with {what}" in refused.err
    assert not loads.has_table("penstock.loads")


def test_join_refuses_foreign_keys_between_its_tables(
    penstock: Callable[..., Finished], loads: Loads, path: Path, tmp_path: Path
) -> None:
    """They order the objects."""
    job = tmp_path / "job.toml"
    targets = "".join(f"[[target]]\ninto = '{table}'\nsources = ['{path}']\n" for table in ("child", "t"))
    job.write_text(f"join = true\nindexes = 'keep'\n{targets}")
    refused = penstock("load", str(job), "--to", loads.conninfo)
    assert refused.code == 2
    assert "--join cannot be used with foreign keys between its tables" in refused.err


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--members", "2"), "--members needs --ray"),
        (("--ray", "auto", "--plan"), "--ray cannot be used with --plan"),
        (("--ray", "auto", "--members", "none"), "--members"),
        (("--ray", "auto", "--mode", "truncate"), "--ray cannot be used with --mode truncate and replace"),
        pytest.param(
            ("--ray", "auto"),
            "--ray needs Ray",
            marks=pytest.mark.skipif(importlib.util.find_spec("ray") is not None, reason="Ray is installed"),
        ),
    ],
)
def test_what_ray_lacks_is_named(
    penstock: Callable[..., Finished], loads: Loads, path: Path, options: tuple[str, ...], words: str
) -> None:
    """Before a member is started."""
    refused = penstock("load", str(path), "--into", "t", "--to", loads.conninfo, *options)
    assert refused.code == 2
    assert words in refused.err
