"""Writes the three tables of sysbench's oltp tests as files, in the shape of sysbench 1.0, from a seed.

As in oltp_common.lua, a row has a number, an integer `k` with sysbench's distribution `special`, and two texts of
eleven-digit groups.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

from penstock.errors import UsageError
from penstock.lab.datasets.datafiles import DataFile, TableProgress, make_folder, write_table
from penstock.lab.datasets.draws import POOL_SIZE, Draws

COLUMNS = ("id", "k", "c", "pad")
TABLES = ("sbtest1", "sbtest2", "sbtest3")

# sysbench's own statement without the primary key, which is built after the rows are loaded.
# Source: oltp_common.lua of sysbench 1.0, create_table.
CREATE = (
    "CREATE TABLE {table} (id integer NOT NULL, k integer DEFAULT 0 NOT NULL, c char(120) DEFAULT '' NOT NULL,"
    " pad char(60) DEFAULT '' NOT NULL)"
)

# The distribution of k: three quarters of all values are in the middle hundredth of the range. Each of the others is
# the mean of twelve uniform draws.
# Source: sysbench 1.0.20, sb_rand_special and the defaults in src/sb_rand.c: --rand-type=special --rand-spec-iter=12
# --rand-spec-pct=1 --rand-spec-res=75. Its later README.md describes them under "Random Numbers Options".
_SPECIAL_ITERATIONS, _SPECIAL_SHARE, _SPECIAL_RESERVED = 12, 0.01, 0.75

_MOST_ROWS = 2_147_483_647
_BATCH_ROWS = 4096
_C_GROUPS, _PAD_GROUPS = 10, 5
_GROUPS = _C_GROUPS + _PAD_GROUPS


def write_sysbench(
    out_dir: Path, *, rows: int, seed: int = 1, on_progress: Callable[[TableProgress], None] | None = None
) -> tuple[DataFile, ...]:
    """Write sbtest1 to sbtest3, each with `rows`, as tab-separated gzip files with a header.

    A file's bytes depend only on seed, rows and table. Raises UsageError if `rows` exceeds the range of the integer
    key, and LabError if a file cannot be written.
    """
    if not 0 < rows <= _MOST_ROWS:
        raise UsageError(f"rows must be from 1 to {_MOST_ROWS:,}: {rows}")
    make_folder(out_dir)
    return tuple(
        write_table(out_dir, table, COLUMNS, _batches(table, rows, seed), expected_rows=rows, on_progress=on_progress)
        for table in TABLES
    )


def _batches(table: str, rows: int, seed: int) -> Iterator[list[str]]:
    draws = Draws(seed, table)
    groups = [f"{number:011d}" for number in (draws.random.randrange(10**11) for _ in range(POOL_SIZE))]
    for first in range(1, rows + 1, _BATCH_ROWS):
        count = min(_BATCH_ROWS, rows + 1 - first)
        keys = draw_special(draws, count, rows)
        chosen = [groups[pick] for pick in draws.picks(count * _GROUPS)]
        yield [
            f"{first + row}\t{keys[row]}\t{'-'.join(chosen[at : at + _C_GROUPS])}"
            f"\t{'-'.join(chosen[at + _C_GROUPS : at + _GROUPS])}\n"
            for row, at in enumerate(range(0, count * _GROUPS, _GROUPS))
        ]


def draw_special(draws: Draws, count: int, limit: int) -> list[int]:
    """Return `count` draws from 1 to `limit` with sysbench's distribution `special`.

    As in sysbench, one draw decides both whether a value is in the middle hundredth and where in it. Only draws of at
    least 1 - _SPECIAL_RESERVED choose the middle, so its lowest quarter gets none of these values.
    """
    width, ordinary = limit - 1, 1 - _SPECIAL_RESERVED
    places = draws.floats(count)
    others = iter(draws.floats(_SPECIAL_ITERATIONS * sum(place < ordinary for place in places)))
    return [
        1 + int(sum(islice(others, _SPECIAL_ITERATIONS)) / _SPECIAL_ITERATIONS * width)
        if place < ordinary
        else 1 + int(place * (width * _SPECIAL_SHARE + 1) + width / 2 - width * _SPECIAL_SHARE / 2)
        for place in places
    ]
