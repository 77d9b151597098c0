"""What does a load cost until nothing of it is left to be written: frozen, analyzed, a checkpoint written? Needs root.

A table of 10 million rows on a volume of 1,000 IOPS and 60 MiB/s, by psql and penstock, with and without COPY FREEZE.
Then a checkpoint and a later VACUUM (FREEZE), which finds nothing to do if the pages are frozen.
"""

from __future__ import annotations

import os
import subprocess
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING

import psycopg

from benchmarks.data import PENSTOCK, principals
from benchmarks.record import save, spread
from benchmarks.rounds import WrongRows
from benchmarks.server import QUALIFIED, Target
from penstock.core.host.disks import measure_disk
from penstock.core.units import GIB, MB
from penstock.embedded.installations import default_installation
from penstock_lab.datasets.people import expected_rows
from penstock_lab.topology.lab import Lab

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from benchmarks.options import Options

_VOLUME = "gp3:20GiB:1000:60"
# Not "unlimited", whose limits could not be changed.
_UNLIMITED = "gp3:20GiB:1000000:10000"
_MEMORY_BYTES = GIB // 2
_SETTINGS = {"max_wal_size": "256MB", "shared_buffers": "128MB"}
_SECTOR_BYTES = 512
# PostgreSQL's defaults but for the format: csv with tabs, and no character quotes.
_OPTIONS = r"FORMAT csv, HEADER, DELIMITER E'\t', NULL '\N', QUOTE E'\x01'"
_PSQL, _PSQL_FREEZE = "zcat | psql, VACUUM (FREEZE, ANALYZE)", "zcat | psql, COPY FREEZE, VACUUM"
_PENSTOCK, _ALWAYS, _CREATE = "penstock", "penstock --freeze always", "penstock --create"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Run:
    """One way, from its first byte to the end of its checkpoint, and the VACUUM (FREEZE) after that."""

    seconds: float
    written_bytes: int
    read_bytes: int
    wal_bytes: int
    later_s: float
    later_wal_bytes: int


def run(options: Options) -> None:
    """Run it and write the results."""
    path = principals(options.data, options.scale)
    rows = expected_rows("title.principals", options.scale)
    lab = Lab.named(f"frozen-{os.getpid()}", options.data)
    try:
        found = lab.up(
            "single", default_installation(), parameters="postgres", volume=_UNLIMITED, memory_bytes=_MEMORY_BYTES
        )
        assert found.conninfo is not None
        with Target(found.conninfo) as target, psycopg.connect(found.conninfo, autocommit=True) as connection:
            for name, value in _SETTINGS.items():
                connection.execute(f"ALTER SYSTEM SET {name} = '{value}'".encode())
            connection.execute("SELECT pg_reload_conf()")
            bench = _Bench(lab, connection, target, path, found.conninfo, rows=rows)
            runs = bench.run(options.runs)
            postgresql = target.settings()
    finally:
        lab.down()
    save(
        "frozen_rows",
        options=options,
        postgresql=postgresql,
        settings={"rows": rows, "volume": "1,000 IOPS, 60 MiB/s", "memory_bytes": _MEMORY_BYTES},
        results={name: [asdict(each) for each in found] for name, found in runs.items()},
        table=_table(runs),
        notes=[
            "Seconds until the table is vacuumed and analyzed, and a checkpoint is written.",
            "MB are those of the volume, by the kernel's counters. Later: VACUUM (FREEZE) after that checkpoint.",
        ],
    )


class _Bench:
    def __init__(
        self, lab: Lab, connection: psycopg.Connection, target: Target, path: Path, conninfo: str, *, rows: int
    ) -> None:
        self._lab = lab
        self._connection = connection
        self._target = target
        self._path = path
        self._conninfo = conninfo
        self._rows = rows
        self._statistics = _find_statistics(connection)

    def run(self, rounds: int) -> dict[str, list[_Run]]:
        """Return the runs of each way, interleaved, after a warm-up; the ways begin in turn."""
        load = [PENSTOCK, "load", str(self._path), "--into", QUALIFIED, "--to", self._conninfo, "--quiet", "--again"]
        ways: Mapping[str, Callable[[], None]] = {
            _PSQL: lambda: self._psql("", "VACUUM (FREEZE, ANALYZE)"),
            _PSQL_FREEZE: lambda: self._psql(", FREEZE", "VACUUM (ANALYZE)"),
            _PENSTOCK: lambda: _call([*load, "--mode", "truncate", "--checkpoint"]),
            _ALWAYS: lambda: _call([*load, "--mode", "truncate", "--freeze", "always", "--checkpoint"]),
            _CREATE: lambda: _call([*load, "--create", "--checkpoint"]),
        }
        runs: dict[str, list[_Run]] = {name: [] for name in ways}
        names = list(ways)
        for number in range(-1, rounds):
            turn = max(0, number) % len(names)
            for name in names[turn:] + names[:turn]:
                measured = self._measure(ways[name], is_created=name == _CREATE)
                print(f"{name}: {measured.seconds:.1f} s, {measured.written_bytes / MB:,.0f} MB", flush=True)
                if number >= 0:
                    runs[name].append(measured)
        return runs

    def _measure(self, act: Callable[[], None], *, is_created: bool) -> _Run:
        self._target.renew()
        if is_created:
            self._connection.execute(f"DROP TABLE {QUALIFIED}".encode())
        self._connection.execute("CHECKPOINT")
        self._lab.change_volume(_VOLUME)
        before, wal = self._count(), self._wal()
        began_s = time.perf_counter()
        act()
        seconds = time.perf_counter() - began_s
        after, later_wal = self._count(), self._wal()
        self._lab.change_volume(_UNLIMITED)
        began_s = time.perf_counter()
        self._connection.execute(f"VACUUM (FREEZE) {QUALIFIED}".encode())
        later_s = time.perf_counter() - began_s
        if self._target.count() != self._rows:
            raise WrongRows("rows are missing")
        return _Run(
            seconds=seconds,
            read_bytes=after[0] - before[0],
            written_bytes=after[1] - before[1],
            wal_bytes=later_wal - wal,
            later_s=later_s,
            later_wal_bytes=self._wal() - later_wal,
        )

    def _psql(self, freeze: str, vacuum: str) -> None:
        psql = [default_installation().program("psql"), "-X", "-q", "-v", "ON_ERROR_STOP=1", "-d", self._conninfo]
        copy = f"COPY {QUALIFIED} FROM STDIN ({_OPTIONS}{freeze})"
        with subprocess.Popen(["gzip", "-dc", str(self._path)], stdout=subprocess.PIPE) as zcat:
            statements = ["BEGIN", f"TRUNCATE {QUALIFIED}", copy, "COMMIT"] if freeze else [copy]
            statements += [f"{vacuum} {QUALIFIED}", "CHECKPOINT"]
            _call([*psql, *(word for each in statements for word in ("-c", each))], stdin=zcat.stdout)

    def _count(self) -> tuple[int, int]:
        """Return the bytes that the volume has read and written so far."""
        fields = self._statistics.read_text().split()
        return int(fields[2]) * _SECTOR_BYTES, int(fields[6]) * _SECTOR_BYTES

    def _wal(self) -> int:
        row = self._connection.execute("SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn").fetchone()
        assert row is not None
        return int(row[0])


def _call(argv: list[str], stdin: IO[bytes] | None = None) -> None:
    subprocess.run(argv, stdin=stdin, stdout=subprocess.DEVNULL, check=True)


def _find_statistics(connection: psycopg.Connection) -> Path:
    """Return the kernel's counters of the device with the server's data."""
    row = connection.execute("SHOW data_directory").fetchone()
    assert row is not None
    disk = measure_disk(Path(row[0]))
    assert disk is not None
    return Path("/sys/class/block", Path(disk.device).resolve().name, "stat")


def _table(runs: Mapping[str, list[_Run]]) -> list[tuple[str, ...]]:
    heading = ("way", "median s", "lowest", "highest", "of psql's", "MB written", "of psql's", "MB read", "MB of WAL")
    table = [(*heading, "later s", "later MB of WAL")]
    base = {
        name: spread([getattr(each, name) for each in runs[_PSQL]])["median"] for name in ("seconds", "written_bytes")
    }
    for name, found in runs.items():
        seconds = spread([each.seconds for each in found])
        written, read, wal, later_wal = (
            spread([getattr(each, field) for each in found])["median"]
            for field in ("written_bytes", "read_bytes", "wal_bytes", "later_wal_bytes")
        )
        table.append(
            (
                name,
                *(f"{seconds[each]:.1f}" for each in ("median", "lowest", "highest")),
                f"{seconds['median'] / base['seconds']:.2f}",
                f"{written / MB:,.0f}",
                f"{written / base['written_bytes']:.2f}",
                f"{read / MB:,.0f}",
                f"{wal / MB:,.0f}",
                f"{spread([each.later_s for each in found])['median']:.2f}",
                f"{later_wal / MB:,.1f}",
            )
        )
    return table
