"""Measures what --indexes rebuild and --settings bulk-load save on a server with default settings, beside psql."""

from __future__ import annotations

import os
import shlex
import subprocess
import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from psycopg.conninfo import conninfo_to_dict

from benchmarks.data import PENSTOCK
from benchmarks.indexed_load import psql_argv
from benchmarks.record import save, spread
from benchmarks.rounds import WrongRows
from benchmarks.server import Target
from benchmarks.tpch import ADD_KEYS, CREATE, DROP, HALVES, LINEITEM, Warehouse, lineitem_rows, write_lineitem
from penstock.core.units import GB
from penstock.embedded.installations import default_installation
from penstock_lab.topology.lab import Lab

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.options import Options

_FILE = "lineitem.csv"
_LOAD = [PENSTOCK, "load", _FILE, "--into", LINEITEM, "--no-header"]
# The checkpoint before a run is counted by then.
_REPORTED_S = 2
_PSQL, _REBUILD = "psql \\copy into all indexes", "penstock --indexes rebuild"
_BY_HAND = "by hand: dropped, psql \\copy, created by two psql at a time"
_BULK = "penstock --settings bulk-load --indexes rebuild"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Run:
    """A whole process, and what the server did meanwhile."""

    seconds: float
    checkpoints: int
    wal_bytes: int
    shown: str


def run(options: Options) -> None:
    """Run it and write the results."""
    rows = lineitem_rows(options.scale)
    folder = options.data / "default-settings"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / _FILE).unlink(missing_ok=True)
    (folder / _FILE).symlink_to(write_lineitem(options.data, options.scale))
    lab = Lab.named(f"defaults-{os.getpid()}", options.data)
    try:
        found = lab.up("single", default_installation(), parameters="postgres")
        assert found.conninfo is not None
        with Warehouse(found.conninfo) as warehouse, Target(found.conninfo) as target:
            warehouse.make(rows)
            runs = _run_ways(warehouse, found.conninfo, folder, rows=rows, rounds=options.runs)
            postgresql = target.settings()
    finally:
        lab.down()
    command = shlex.join(["penstock", *_LOAD[1:], "--settings", "bulk-load", "--indexes", "rebuild"])
    save(
        "default_settings",
        options=options,
        postgresql=postgresql,
        settings={"rows": rows},
        results={name: [asdict(run) for run in ways] for name, ways in runs.items()},
        table=[("way", "median s", "lowest", "highest", "checkpoints", "WAL GB"), *_table(runs)],
        notes=[
            (
                "The table is empty at the start, with a key, four indexes and a foreign key. All seconds have a "
                "VACUUM (ANALYZE) in them, except those of psql into all indexes."
            ),
            "",
            "The last run:",
            "",
            "```text",
            f"$ {command}",
            runs[_BULK][-1].shown.rstrip(),
            "```",
        ],
    )


def _run_ways(warehouse: Warehouse, conninfo: str, folder: Path, *, rows: int, rounds: int) -> dict[str, list[_Run]]:
    copy = f"\\copy {LINEITEM} FROM '{_FILE}' (FORMAT csv)"
    ways = {
        _PSQL: psql_argv(conninfo, copy),
        _BY_HAND: ["sh", "-c", _script_by_hand(conninfo, copy)],
        _REBUILD: [*_LOAD, "--again", "--indexes", "rebuild"],
        _BULK: [*_LOAD, "--again", "--settings", "bulk-load", "--indexes", "rebuild"],
    }
    runs: dict[str, list[_Run]] = {name: [] for name in ways}
    warehouse.renew(has_indexes=True)
    whole = warehouse.describe()
    for number in range(-1, rounds):
        for name, argv in ways.items():
            warehouse.renew(has_indexes=True)
            time.sleep(_REPORTED_S)
            measured = _run_once(warehouse, argv, conninfo, folder)
            if warehouse.count() != rows or warehouse.describe() != whole:
                raise WrongRows(f"{name} left another table than it should")
            print(f"{name}: {measured.seconds:.2f} s, {measured.checkpoints} checkpoints", flush=True)
            if number >= 0:
                runs[name].append(measured)
    return runs


def _script_by_hand(conninfo: str, copy: str) -> str:
    """Return what a shell runs: drop and copy, create the indexes by two psql at a time, then the keys, and VACUUM."""

    def psql(*commands: str) -> str:
        return shlex.join(psql_argv(conninfo, *commands))

    first, second = (psql(*(CREATE[name] for name in names)) for names in HALVES)
    ends = psql(*ADD_KEYS, f"VACUUM (ANALYZE) {LINEITEM}")
    return f"{psql(*DROP, copy)} && {{ {first} & {second} & wait; }} && {ends}"


def _run_once(warehouse: Warehouse, argv: list[str], conninfo: str, folder: Path) -> _Run:
    named = {"host": "PGHOST", "port": "PGPORT", "user": "PGUSER", "dbname": "PGDATABASE"}
    server = {named[key]: str(value) for key, value in conninfo_to_dict(conninfo).items() if key in named}
    checkpoints, wal_bytes = _count(warehouse)
    began_s = time.perf_counter()
    done = subprocess.run(argv, cwd=folder, env={**os.environ, **server}, stdout=subprocess.PIPE, text=True, check=True)
    seconds = time.perf_counter() - began_s
    later, later_bytes = _count(warehouse)
    return _Run(seconds=seconds, checkpoints=later - checkpoints, wal_bytes=later_bytes - wal_bytes, shown=done.stdout)


def _count(warehouse: Warehouse) -> tuple[int, int]:
    """Return the checkpoints that have begun and the bytes of WAL so far."""
    row = warehouse.connection.execute(
        "SELECT num_timed + num_requested, pg_current_wal_insert_lsn() - '0/0'::pg_lsn FROM pg_stat_checkpointer"
    ).fetchone()
    assert row is not None
    return int(row[0]), int(row[1])


def _table(runs: dict[str, list[_Run]]) -> list[tuple[str, ...]]:
    table = []
    for name, ways in runs.items():
        taken_s = spread([run.seconds for run in ways])
        checkpoints = spread([run.checkpoints for run in ways])
        wal_gb = spread([run.wal_bytes / GB for run in ways])
        table.append(
            (
                name,
                *(f"{taken_s[each]:.1f}" for each in ("median", "lowest", "highest")),
                f"{checkpoints['median']:.0f}",
                f"{wal_gb['median']:.2f}",
            )
        )
    return table
