"""The ways that are compared on one file: each loads it into the empty table and returns its cost."""

from __future__ import annotations

import queue
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

import psycopg

from benchmarks.data import PENSTOCK, split_as_copy_text
from benchmarks.processes import Cost, run_measured
from benchmarks.server import QUALIFIED, SCHEMA, TABLE

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from penstock.embedded.server import EmbeddedServer

# A quote that the file does not have: COPY cannot do without one in csv.
_QUOTE = "\x01"
_COPY_CSV = "FORMAT csv, DELIMITER E'\\t', NULL '\\N', QUOTE E'\\x01', ESCAPE E'\\x01', HEADER"

# The other ways load and do no more.
AS_COPY = ("--no-vacuum",)

_PART_COUNTS = (2, 4, 8)
_WORKER_COUNTS = (2, 3, 4)


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """One way with one setting. `is_exact`: the table holds what the file holds, so checksums must agree."""

    family: str
    setting: str
    run: Callable[[], Cost]
    is_exact: bool = True

    @property
    def name(self) -> str:
        """Return the way's name with its setting."""
        return f"{self.family} ({self.setting})" if self.setting else self.family


def penstock(conninfo: str, path: Path, *, setting: str = "") -> Variant:
    """`penstock load`, the whole process as a user starts it."""
    argv = [PENSTOCK, "load", str(path), "--into", QUALIFIED, "--to", conninfo, "--quiet", "--again", *AS_COPY]
    return Variant(family="penstock load", setting=setting, run=lambda: run_measured(argv))


def zcat_psql(server: EmbeddedServer, path: Path) -> list[Variant]:
    """`gzip -dc FILE | psql -c "COPY ... FROM STDIN"`, as csv and as text, which decodes backslashes."""

    def variant(setting: str, copy_options: str, *, is_exact: bool) -> Variant:
        statement = f"COPY {QUALIFIED} FROM STDIN ({copy_options})"
        argv = server.psql_argv(["--no-psqlrc", "--dbname=postgres", "--command", statement])
        return Variant(
            family="zcat | psql",
            setting=setting,
            run=lambda: run_measured(argv, gunzip=path),
            is_exact=is_exact,
        )

    return [variant("csv", _COPY_CSV, is_exact=True), variant("text", "FORMAT text, HEADER", is_exact=False)]


def parallel_copy(server: EmbeddedServer, path: Path, tspc: Path) -> list[Variant]:
    """`gzip -dc FILE | timescaledb-parallel-copy`, with several worker counts; its batch sizes are its defaults."""

    def variant(workers: int) -> Variant:
        argv = [str(tspc), "--connection", f"{server.conninfo()} sslmode=disable", "--schema", SCHEMA, "--table", TABLE]
        argv += ["--workers", str(workers), "--split", "\t", "--skip-header", "--quote", _QUOTE, "--escape", _QUOTE]
        argv += ["--copy-options", "NULL '\\N' CSV", "--reporting-period", "0s"]
        return Variant(
            family="zcat | timescaledb-parallel-copy",
            setting=f"{workers} workers",
            run=lambda: run_measured(argv, gunzip=path),
        )

    return [variant(workers) for workers in _WORKER_COUNTS]


def server_side(server: EmbeddedServer, path: Path) -> list[Variant]:
    """`COPY ... FROM '/file'` by the server itself: plain files, split before; no client, no decompression."""

    def variant(parts: list[Path], sessions: int) -> Variant:
        return Variant(
            family="server-side COPY of split plain files",
            setting=f"{len(parts)} files, {sessions} sessions",
            run=lambda: _copy_parts(server, parts, sessions),
        )

    return [
        variant(split_as_copy_text(path, count), sessions)
        for count in _PART_COUNTS
        for sessions in _WORKER_COUNTS
        if sessions <= count
    ]


def _copy_parts(server: EmbeddedServer, parts: list[Path], sessions: int) -> Cost:
    """Let `sessions` connections take one file after another; each file is one transaction."""
    waiting: queue.SimpleQueue[Path] = queue.SimpleQueue()
    for part in parts:
        waiting.put(part)
    began_s = time.perf_counter()
    with ThreadPoolExecutor(max_workers=sessions) as threads:
        runs = [threads.submit(_copy_waiting, server.conninfo(), waiting) for _ in range(sessions)]
    for run in runs:
        run.result()
    return Cost(seconds=time.perf_counter() - began_s)


def _copy_waiting(conninfo: str, waiting: queue.SimpleQueue[Path]) -> None:
    with psycopg.connect(conninfo, autocommit=True) as connection:
        while True:
            try:
                part = waiting.get_nowait()
            except queue.Empty:
                return
            connection.execute(f"COPY {QUALIFIED} FROM '{part}'")
