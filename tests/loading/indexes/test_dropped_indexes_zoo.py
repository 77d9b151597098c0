"""Whatever is dropped comes back as it was, for every kind of index and key there is."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from penstock.core.values.job import LoadRules
from support.files import write_to
from support.loads import Loads, indexes_of, target
from support.zoo import can_describe, describe_schema, make_zoo

if TYPE_CHECKING:
    from pathlib import Path

    from support.servers import PgServer

REBUILD = LoadRules(retry_for=0.0, indexes="rebuild")
ROWS = 100


@pytest.fixture(autouse=True)
def _has_pg_dump(pg: PgServer) -> None:
    if not can_describe(pg):
        pytest.skip("no pg_dump here reads this server (Debian's package postgresql-15)")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Provide a csv file that fits every table of the zoo."""
    return write_to(tmp_path / "rows.csv", "id,a,b\n" + "".join(f"{n},{n},row {n}\n" for n in range(1, ROWS + 1)))


@pytest.mark.pg("!= 17")
@pytest.mark.part("rest")
def test_the_zoo_is_what_it_was(pg: PgServer, database: str, path: Path) -> None:
    """All at once: circles of foreign keys are dropped and rebuilt together."""
    tables = make_zoo(pg, database)
    before = describe_schema(pg, database)
    loads = Loads(database)
    outcome = loads.run(*(target(path, into=table) for table in tables), rules=REBUILD)
    assert outcome.rows == ROWS * len(tables)
    assert len(tables) >= 40
    assert len(indexes_of(outcome).rebuilt) >= 85
    after = describe_schema(pg, database)
    assert after[0] == before[0]
    assert after[1:] == before[1:]
    assert loads.execute("SELECT count(*) FROM penstock.changes") == [(0,)]
    assert loads.execute("SELECT count(*) FROM penstock.holds") == [(0,)]
