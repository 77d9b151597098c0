"""docs/locks.md: what a mode holds on its table while rows are written to it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from support.files import write_to
from support.loads import IMPATIENT, Loads, target

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from penstock.core.values.job import Mode, TargetJob

pytestmark = pytest.mark.versions

# In its own transaction a statement's trigger sees what that holds, whenever it comes.
SEE_LOCKS = """
    CREATE TABLE t (a int PRIMARY KEY, b text);
    CREATE TABLE seen (mode text);
    CREATE FUNCTION see() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
      INSERT INTO public.seen SELECT l.mode FROM pg_catalog.pg_locks AS l
       WHERE l.pid = pg_catalog.pg_backend_pid() AND l.relation = TG_RELID AND l.granted;
      RETURN NULL; END $$;
    CREATE TRIGGER see AFTER INSERT ON t FOR EACH STATEMENT EXECUTE FUNCTION see()
"""
# These keep writers out, the last one readers too.
STRONG = {"ShareLock", "ShareRowExclusiveLock", "ExclusiveLock", "AccessExclusiveLock"}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Provide a file of many small pieces."""
    return write_to(tmp_path / "f.csv", "a,b\n" + "".join(f"{number},x\n" for number in range(2000)))


@pytest.mark.parametrize(
    ("mode", "is_atomic", "keeps_readers_out"),
    [
        ("append", False, False),
        ("append", True, False),
        ("truncate", False, False),
        ("truncate", True, True),
        ("upsert", False, False),
        ("insert-new", False, False),
        ("sync", False, False),
    ],
)
def test_modes_hold_on_their_table_what_is_documented(
    database: str, path: Path, mode: Mode, *, is_atomic: bool, keeps_readers_out: bool
) -> None:
    """Only truncate --atomic keeps others out while rows come into the table."""
    loads = Loads(database, piece_bytes=500, setup=SEE_LOCKS)
    loads.run(_job(path, mode), rules=replace(IMPATIENT, atomic=is_atomic))
    held = {mode for (mode,) in loads.execute("SELECT DISTINCT mode FROM seen")}
    assert "RowExclusiveLock" in held
    assert ("AccessExclusiveLock" in held) is keeps_readers_out
    assert keeps_readers_out or not held & STRONG


@pytest.mark.parametrize(("mode", "is_atomic"), [("replace", False), ("truncate", True), ("upsert", False)])
def test_nothing_is_held_while_rows_are_loaded_beside_the_table(
    database: str, path: Path, mode: Mode, *, is_atomic: bool
) -> None:
    """Into a new table or a staging table: whoever writes to the old one meanwhile is not kept out."""
    loads = Loads(database, piece_bytes=500, setup="CREATE TABLE t (a int PRIMARY KEY, b text)")
    seen: set[str] = set()
    loads.at_piece = _look(loads, seen)
    loads.run(_job(path, mode), rules=replace(IMPATIENT, atomic=is_atomic))
    assert seen <= {"AccessShareLock"}
    assert loads.count() == 2000


def _job(path: Path, mode: Mode) -> TargetJob:
    return replace(target(path), mode=mode, key=("a",) if mode in ("upsert", "insert-new", "sync") else ())


def _look(loads: Loads, seen: set[str]) -> Callable[[int], None]:
    def look(number: int) -> None:
        if number % 5 == 0:
            found = loads.execute(
                "SELECT mode FROM pg_locks WHERE granted AND relation = 't'::regclass AND pid <> pg_backend_pid()"
            )
            seen.update(mode for (mode,) in found)

    return look
