"""Loads of partitions that are made or replaced are killed at each wait for the server, and run again, or repaired."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from support.campaign.processes import Zygote
from support.loads import Loads, await_end_of_backends

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

# More than a load of these rows has.
_NEVER = 100_000
_LONG_S = 60.0

_SETUP = """
    CREATE TABLE kinds (id int PRIMARY KEY);
    INSERT INTO kinds SELECT n FROM generate_series(0, 9) AS n;
    CREATE TABLE events (
        id int GENERATED ALWAYS AS IDENTITY, at int NOT NULL, kind int REFERENCES kinds, PRIMARY KEY (id, at)
    ) PARTITION BY RANGE (at);
    CREATE INDEX ON events (kind);
    CREATE TABLE events_1 PARTITION OF events FOR VALUES FROM (0) TO (10);
    CREATE TABLE rest PARTITION OF events DEFAULT;
    INSERT INTO events (at, kind) VALUES (1, 1);
"""
_ROWS = 400

# What each way of a load is told, and what makes the table that it begins with.
_WAYS: dict[str, tuple[dict[str, Any], str, int]] = {
    "made": ({"partition_of": "events", "for_values": "FROM (10) TO (20)", "mode": "append"}, "", 0),
    "replaced": (
        {"mode": "replace"},
        """
        CREATE TABLE events_2 PARTITION OF events FOR VALUES FROM (10) TO (20);
        INSERT INTO events (id, at, kind) OVERRIDING SYSTEM VALUE SELECT n, 15, 2 FROM generate_series(-9, -1) AS n;
        """,
        9,
    ),
}


@pytest.fixture
def zygote() -> Iterator[Zygote]:
    """Provide what starts loaders."""
    zygote = Zygote()
    yield zygote
    zygote.close()


class Killed:
    """A database, and loaders of a partition of its table that die at a wait."""

    def __init__(self, zygote: Zygote, conninfo: str, folder: Path, way: str) -> None:
        self._zygote = zygote
        self._options, self._begin, self._former = _WAYS[way]
        self.loads = Loads(conninfo, setup=_SETUP + self._begin)
        self._folder = folder
        (folder / "day.csv").write_text("at,kind\n" + "".join(f"{10 + n % 10},{n % 10}\n" for n in range(_ROWS)))

    def run(self, dies_at: int, *, after: bool = False) -> int:
        """Run a loader, and return its exit code."""
        request: dict[str, Any] = {
            "name": f"loader {dies_at} ",
            "log": str(self._folder / "log"),
            "conninfo": self.loads.conninfo,
            "environment": {},
            "table": "events_2",
            "sources": [str(self._folder / "day.csv")],
            "dialect": {},
            "key": [],
            "sessions": 2,
            "batch_bytes": 1000,
            "piece_bytes": 500,
            "piece_s": 0,
            "retry_for_s": 0.0,
            "on_error": "stop",
            "on_changed": "error",
            "dies_at": dies_at,
            "dies_after": after,
            **self._options,
        }
        Path(request["log"]).unlink(missing_ok=True)
        loader = self._zygote.start(request)
        assert loader.wait(_LONG_S), loader.read_log()
        assert loader.exit_code in (0, -9), loader.read_log()
        return loader.exit_code

    def check_before(self) -> None:
        """Check that the parent has all rows of the new partition, or those of the former one."""
        assert self.loads.count("events") in (1 + self._former, 1 + _ROWS)

    def check(self) -> None:
        """Check that each row is there once, and that nothing is left."""
        loads = self.loads
        assert loads.execute("SELECT count(*)::int, count(DISTINCT id)::int, sum(at)::int FROM events_2") == [
            (_ROWS, _ROWS, _ROWS // 10 * sum(range(10, 20)))
        ]
        assert loads.count("events") == 1 + _ROWS
        # A load with --mode replace that has ended is another load when it is run again.
        assert loads.execute("SELECT DISTINCT state FROM penstock.loads") == [("complete",)]
        assert self.left() == []
        indexes = "SELECT count(*)::int FROM pg_index i JOIN pg_inherits h ON h.inhrelid = i.indexrelid WHERE"
        assert loads.execute(f"{indexes} i.indrelid = 'events_2'::regclass AND i.indisvalid") == [(2,)]

    def left(self) -> list[Any]:
        """Return what penstock has made that is not the partition's."""
        return self.loads.execute(
            "SELECT relname FROM pg_class WHERE relname LIKE 'penstock%' AND relnamespace = 'public'::regnamespace"
            " UNION ALL SELECT conname FROM pg_constraint WHERE conname LIKE 'penstock%'"
            " UNION ALL SELECT relname FROM pg_class WHERE relpersistence = 't'"
        )

    def clean(self) -> None:
        """Remove the partition, and its load from the ledger, and make the former partition."""
        self.loads.execute("DROP TABLE events_2; DELETE FROM penstock.loads;" + self._begin)


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("way", _WAYS)
def test_a_load_that_is_killed_anywhere_leaves_nothing(
    zygote: Zygote, ledger18: str, tmp_path: Path, some: Callable[[Sequence[int], int], list[int]], way: str
) -> None:
    """Resumed, all rows are there once; repaired, only what was there before."""
    killed, deaths, wait = Killed(zygote, ledger18, tmp_path, way), 0, 0
    assert killed.run(_NEVER) == 0
    killed.check()
    killed.clean()
    step = 1 if len(some(range(2), 1)) == 2 else 23
    for wait in range(1, _NEVER, step):
        if killed.run(wait, after=wait % 2 == 0) == 0:
            killed.clean()
            break
        deaths += 1
        await_end_of_backends(killed.loads)
        killed.check_before()
        if wait % 3 == 0:
            killed.loads.repair()
            assert killed.left() == []
        assert killed.run(_NEVER) == 0
        killed.check()
        killed.clean()
    print(f"{deaths} kills")
    assert deaths * step > 60
