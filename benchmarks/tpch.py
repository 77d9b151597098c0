"""TPC-H's orders and lineitem, in shape: made from a seed, with the keys and indexes that a warehouse has on them.

Columns, types and widths are the benchmark's; values are drawn by rules of our own, so no figure here is a TPC result.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import psycopg

from benchmarks.server import make_open_dir

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from typing import Self

SCHEMA = "tpch"
ORDERS = f"{SCHEMA}.orders"
LINEITEM = f"{SCHEMA}.lineitem"

# Of the scale at which title.principals has 10 million rows, lineitem has 3 million.
_ROWS_AT_SCALE_1 = 27_000_000
_SEED = 20_260_101
_LINES_PER_ORDER = 4

_TABLES = (
    f"""
    CREATE TABLE {ORDERS} (
        o_orderkey bigint PRIMARY KEY, o_custkey bigint NOT NULL, o_orderstatus char(1) NOT NULL,
        o_totalprice numeric(15, 2) NOT NULL, o_orderdate date NOT NULL
    )
    """,
    f"""
    CREATE TABLE {LINEITEM} (
        l_orderkey bigint NOT NULL, l_partkey bigint NOT NULL, l_suppkey bigint NOT NULL,
        l_linenumber integer NOT NULL, l_quantity numeric(15, 2) NOT NULL, l_extendedprice numeric(15, 2) NOT NULL,
        l_discount numeric(15, 2) NOT NULL, l_tax numeric(15, 2) NOT NULL, l_returnflag char(1) NOT NULL,
        l_linestatus char(1) NOT NULL, l_shipdate date NOT NULL, l_commitdate date NOT NULL,
        l_receiptdate date NOT NULL, l_shipinstruct char(25) NOT NULL, l_shipmode char(10) NOT NULL,
        l_comment varchar(44) NOT NULL
    )
    """,
)
KEY = "PRIMARY KEY (l_orderkey, l_linenumber)"
INDEXES = {
    "lineitem_shipdate": "(l_shipdate)",
    "lineitem_part_supplier": "(l_partkey, l_suppkey)",
    "lineitem_shipmode": "(l_shipmode, l_receiptdate)",
    "lineitem_comment": "(l_comment)",
}
_REFERENCE = f"ADD FOREIGN KEY (l_orderkey) REFERENCES {ORDERS}"

# What is done by hand around a COPY: all is dropped, and created after the rows. Keys come after the indexes, because
# ALTER TABLE waits for CREATE INDEX of another session.
DROP = (
    f"ALTER TABLE {LINEITEM} DROP CONSTRAINT lineitem_l_orderkey_fkey, DROP CONSTRAINT lineitem_pkey",
    f"DROP INDEX {', '.join(f'{SCHEMA}.{name}' for name in INDEXES)}",
)
CREATE = {name: f"CREATE INDEX {name} ON {LINEITEM} {body}" for name, body in INDEXES.items()}
ADD_KEYS = (f"ALTER TABLE {LINEITEM} ADD {KEY}", f"ALTER TABLE {LINEITEM} {_REFERENCE}")
# Two sessions that create as much each: the two indexes that take longest apart, each with one that takes less.
HALVES = (("lineitem_shipmode", "lineitem_shipdate"), ("lineitem_comment", "lineitem_part_supplier"))

_INSTRUCTIONS = ("DELIVER IN PERSON", "COLLECT COD", "NONE", "TAKE BACK RETURN")
_MODES = ("REG AIR", "AIR", "RAIL", "SHIP", "TRUCK", "MAIL", "FOB")
_WORDS = ("furiously", "pending", "deposits", "haggle", "carefully", "ironic", "packages", "sleep", "final", "accounts")


def lineitem_rows(scale: float) -> int:
    """Return how many rows lineitem has at a scale."""
    return max(_LINES_PER_ORDER, round(_ROWS_AT_SCALE_1 * scale) // _LINES_PER_ORDER * _LINES_PER_ORDER)


def write_lineitem(data: Path, scale: float) -> Path:
    """Return lineitem.csv, without a header, at a scale; it is made once."""
    make_open_dir(data)
    rows = lineitem_rows(scale)
    path = data / f"lineitem-by-key-{rows}.csv"
    if not path.exists():
        unfinished = path.with_suffix(".new")
        with unfinished.open("w", encoding="ascii") as out:
            out.writelines(_lines(rows))
        unfinished.replace(path)
    return path


def _lines(rows: int) -> Iterator[str]:
    rng = random.Random(_SEED)
    # In the order of the key, as dbgen writes them: the primary key grows at its end, the other indexes all over.
    for order in range(1, rows // _LINES_PER_ORDER + 1):
        year, month = rng.randrange(1992, 1999), rng.randrange(1, 13)
        for line in range(1, _LINES_PER_ORDER + 1):
            day = rng.randrange(1, 26)
            part, quantity = rng.randrange(1, 200_001), rng.randrange(1, 51)
            price = f"{quantity * (900 + part % 1000)}.{part % 100:02}"
            yield (
                f"{order},{part},{part % 10_000 + 1},{line},{quantity}.00,{price},"
                f"0.0{rng.randrange(10)},0.0{rng.randrange(9)},{'ANR'[part % 3]},{'OF'[part % 2]},"
                f"{year}-{month:02}-{day:02},{year}-{month:02}-{day + 1:02},{year}-{month:02}-{day + 2:02},"
                f"{_INSTRUCTIONS[part % 4]},{_MODES[part % 7]},{' '.join(rng.choices(_WORDS, k=3))} {part}\n"
            )


class Warehouse:
    """The two tables on a server: orders are there, lineitem is made anew before each run."""

    def __init__(self, conninfo: str) -> None:
        self.connection = psycopg.connect(conninfo, autocommit=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.connection.close()

    def make(self, rows: int) -> None:
        """Make both tables anew, and the orders that lineitem refers to."""
        self._run(f"DROP SCHEMA IF EXISTS {SCHEMA} CASCADE", f"CREATE SCHEMA {SCHEMA}", *_TABLES)
        self._run(
            f"INSERT INTO {ORDERS} SELECT n, n % 150000, 'O', n % 400000, date '1992-01-01' + (n % 2400)::int"
            f" FROM generate_series(1, {rows // _LINES_PER_ORDER}) AS n",
            f"VACUUM (ANALYZE) {ORDERS}",
        )

    def renew(self, *, has_indexes: bool) -> None:
        """Make lineitem anew, empty, with its key, indexes and foreign key or bare; let the server write the dirty."""
        self._run(f"DROP TABLE {LINEITEM}", _TABLES[1])
        if has_indexes:
            self._run(f"ALTER TABLE {LINEITEM} ADD {KEY}")
            self._run(*CREATE.values())
            self._run(f"ALTER TABLE {LINEITEM} {_REFERENCE}")
        self._run("CHECKPOINT")

    def count(self) -> int:
        """Return lineitem's rows."""
        row = self.connection.execute(f"SELECT count(*) FROM {LINEITEM}".encode()).fetchone()
        assert row is not None
        return int(row[0])

    def describe(self) -> list[str]:
        """Return lineitem's valid indexes and constraints, as the server spells them."""
        found = self.connection.execute(
            "SELECT pg_get_indexdef(indexrelid) FROM pg_index WHERE indrelid = %(table)s::regclass AND indisvalid"
            " UNION ALL SELECT pg_get_constraintdef(oid) FROM pg_constraint WHERE conrelid = %(table)s::regclass"
            " AND contype IN ('p', 'f') AND convalidated ORDER BY 1",
            {"table": LINEITEM},
        )
        return [text for (text,) in found]

    def vacuum(self) -> None:
        """Vacuum and analyze lineitem."""
        self._run(f"VACUUM (ANALYZE) {LINEITEM}")

    def _run(self, *statements: str) -> None:
        for statement in statements:
            self.connection.execute(statement.encode())
