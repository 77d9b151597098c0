"""Reads the tables of statements once: after a restore from a snapshot, blocks come when they are first read."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import TYPE_CHECKING

from penstock.core.connect.errors import translate_errors
from penstock.core.errors import PenstockError
from penstock.core.slotted import slotted
from penstock.core.sql import fetch_names, fetch_rows, run_query
from penstock.core.units import MIB, count_nouns, format_bytes
from penstock.core.values.diagnosis import Diagnosis, ok, warning
from penstock.temp.replay.run import NOT_ALLOWED
from penstock.temp.statements import walk_nodes

if TYPE_CHECKING:
    from penstock.core.connect.connection import Connection, ConnectionFactory
    from penstock.temp.statements import Plan

# Sessions wait for the volume, not for the processor.
_SESSIONS = 4
_STRETCH_BYTES = 64 * MIB
# Progress is told after each twentieth.
_STEPS = 20


@slotted
class StoredBlocks:
    """A row of blocks.sql: a table, a TOAST table or an index, and its blocks."""

    oid: int
    schema: str
    name: str
    is_table: bool
    blocks: int


def find_tables(plans: Sequence[Plan]) -> list[tuple[str, str]]:
    """Return the schema and the name of each table in plans by EXPLAIN (VERBOSE), each once."""
    nodes = (node for plan in plans for node in walk_nodes(plan))
    return list(dict.fromkeys((node["Schema"], node["Relation Name"]) for node in nodes if "Relation Name" in node))


def read_tables(
    factory: ConnectionFactory,
    tables: Sequence[tuple[str, str]],
    *,
    block_bytes: int,
    say: Callable[[str], None],
) -> Diagnosis:
    """Read the blocks of tables in several sessions, and return what was read.

    With the extension pg_prewarm, indexes and TOAST tables are read too, if the role may. `say` is called with the
    progress. Raises ServerError.
    """
    with factory.connect(label="replay") as connection, translate_errors("reading the sizes of the tables"):
        names = {"schemas": [schema for schema, _ in tables], "tables": [name for _, name in tables]}
        found = fetch_rows(connection, "temp/blocks", StoredBlocks, **names)
        prewarm_schema = next(iter(fetch_names(connection, "temp/prewarm_schema")), None)
    parts = [part for part in found if part.is_table or prewarm_schema is not None]
    total = sum(part.blocks for part in parts)
    stretches = _cut(parts, max(1, _STRETCH_BYTES // block_bytes))
    turn, stop = threading.Lock(), threading.Event()
    refused: set[int] = set()
    done = 0

    def read() -> None:
        nonlocal done
        with factory.connect(label="replay") as connection:
            while not stop.is_set():
                with turn:
                    stretch = next(stretches, None)
                if stretch is None:
                    return
                part, first, last = stretch
                if part.oid in refused or not _read(connection, part, first, last, prewarm_schema):
                    refused.add(part.oid)
                    continue
                with turn:
                    before, done = done, done + last - first + 1
                    if before * _STEPS // total < done * _STEPS // total:
                        sizes = f"{format_bytes(done * block_bytes)} of {format_bytes(total * block_bytes)}"
                        say(f"read {sizes} of the second server's tables")

    with ThreadPoolExecutor(max_workers=_SESSIONS) as pool:
        readers = [pool.submit(read) for _ in range(_SESSIONS)]
        try:
            for reader in as_completed(readers):
                reader.result()
        except BaseException:
            # The pool waits for its threads, which may have hours of reading left.
            stop.set()
            raise
    if refused:
        return _refused([part for part in parts if part.oid in refused])
    what = f"{format_bytes(total * block_bytes)} of {count_nouns(len(tables), 'table')}"
    rest = (
        ", indexes included"
        if prewarm_schema is not None
        else ", without indexes: the database lacks extension pg_prewarm"
    )
    return ok("blocks", f"read {what} on the second server{rest}")


def _refused(parts: Sequence[StoredBlocks]) -> Diagnosis:
    names = ", ".join(sorted(f"{part.schema}.{part.name}" for part in parts))
    remedy = "Replay as a member of pg_read_all_data, or read them as their owner before."
    return warning("blocks", f"the role may not read all tables and indexes of the second server: {names}", remedy)


def _cut(parts: Sequence[StoredBlocks], length: int) -> Iterator[tuple[StoredBlocks, int, int]]:
    """Yield each part in stretches of blocks, with the first and the last block of each."""
    for part in parts:
        for first in range(0, part.blocks, length):
            yield part, first, min(first + length, part.blocks) - 1


def _read(connection: Connection, part: StoredBlocks, first: int, last: int, prewarm_schema: str | None) -> bool:
    """Read blocks of a part. Return false if the role may not, as if its statements read the table by a view."""
    try:
        with translate_errors(f"reading {part.schema}.{part.name}"):
            if prewarm_schema is not None:
                given = {"extension": prewarm_schema, "oid": part.oid, "first": first, "last": last}
                run_query(connection, "temp/prewarm_blocks", **given)
            else:
                ends = {"from": f"({first},0)", "to": f"({last + 1},0)"}
                run_query(connection, "temp/read_blocks", schema=part.schema, table=part.name, **ends)
    except PenstockError as error:
        if error.sqlstate != NOT_ALLOWED:
            raise
        return False
    return True
