"""What must hold once a load has ended: the table's rows, the ledger's ranges, and what faults may cost."""

from __future__ import annotations

import time
import zlib
from collections import Counter
from typing import TYPE_CHECKING

from psycopg.conninfo import make_conninfo

import penstock
from penstock.settings.decide import LEASABLE
from support.campaign.plant import Pair

if TYPE_CHECKING:
    from support.campaign.files import Row
    from support.campaign.ledger import LedgerView
    from support.campaign.scenario import Run

# Modes that meet rows which are in the table already.
MERGES = ("upsert", "insert-new", "sync")

# What is in the table before, other than by append: ids that are in no file, and some that are.
BEFORE: tuple[Row, ...] = tuple((str(number), "1.00", "before") for number in range(-100, 100))

# Batches are of so many bytes; their rows are not all of one length.
_BATCH_SLACK = 1.3

_OTHER_TABLES = """
    SELECT c.oid::regclass::text
      FROM pg_class AS c
     WHERE c.relkind = 'r'
       AND c.relnamespace NOT IN ('pg_catalog'::regnamespace, 'information_schema'::regnamespace)
       AND c.relnamespace <> 'penstock'::regnamespace
       AND c.relnamespace IS DISTINCT FROM to_regnamespace('aws_s3')
       AND c.relname NOT IN ('campaign_brake', %s)
       AND c.relname !~ '^t_'
"""


def check_load(run: Run) -> int | None:
    """Compare an ended load with its files and the ledger; return how many rows were sent more than once.

    Raises AssertionError if any row is lost, repeated or wrong. The number of rows sent more than once is known only if
    the server was not lost and only COPY wrote to the table.
    """
    view, scenario = run.look(), run.scenario
    assert view is not None, "the ledger knows of no load"
    has_success = run.loaders[-1].exit_code == 0
    assert not (has_success and view.is_incomplete), f"1 false success: the load is {view.state}"
    assert view.state == "complete", f"the load is {view.state}"
    found = Counter(run.observer.execute(f"SELECT id::text, amount::text, note FROM {run.table}"))
    expected = _expect(run)
    lost, repeated = (expected - found).total(), (found - expected).total()
    assert not lost, f"{lost} rows lost, {repeated} rows repeated"
    assert not repeated, f"{lost} rows lost, {repeated} rows repeated"
    total = run.files.rows.total()
    loads = _find_loads(run, view)
    ((rows,),) = run.observer.execute(
        "SELECT coalesce(sum(rows), 0) FROM penstock.ranges WHERE load = ANY (%s::uuid[])", [loads]
    )
    assert run.scenario.mode in MERGES or rows == total, f"the ledger has {rows} rows of {total}"
    assert find_rejects(run, loads) == run.files.bad, "the rejects are others"
    left = run.observer.execute(_OTHER_TABLES, [run.table])
    assert not left, f"tables stay that the load made: {left}"
    if scenario.theme == "import":
        _check_imported(run, view.load_id)
    else:
        for name, text in run.files.texts.items():
            _check_object(run, loads, name, text)
    _check_restored(run)
    _verify(run, view.load_id)
    is_counted = scenario.theme in ("loader", "commit", "network") and scenario.mode == "append" and not scenario.bad
    return _check_redone(run, view.load_id, total) if is_counted else None


def find_rejects(run: Run, loads: list[str]) -> Counter[bytes]:
    """Return the records that loads have rejected and nobody has stored since."""
    refused = run.observer.execute("SELECT raw FROM penstock.rejects WHERE load = ANY (%s::uuid[])", [loads])
    return Counter(raw.rstrip(b"\r\n") for (raw,) in refused)


def _check_restored(run: Run) -> None:
    """Check that the table's index is there once, and that the server has its own settings again."""
    if run.has_index:
        ((count,),) = run.observer.execute(
            "SELECT count(*) FROM pg_index WHERE indrelid = %s::regclass AND indisvalid", [run.table]
        )
        assert count == 1, "the index was not rebuilt once"
    if run.scenario.settings != "none":
        if isinstance(run.place, Pair) and run.loaders[-1].exit_code != 0:
            # It was killed when the load was complete, and no other has come since.
            run.place.restore_settings(forgets=False)
        changed = run.observer.execute(
            "SELECT name, setting FROM pg_file_settings WHERE sourcefile LIKE '%%auto.conf' AND name = ANY (%s)",
            [list(LEASABLE)],
        )
        assert not changed, f"settings are not restored: {changed}"


def _verify(run: Run, load_id: str) -> None:
    """Have penstock verify the load, with values; not if this process cannot read its sources, or they differ."""
    if run.store is not None or run.replaced_by is not None or run.scenario.theme == "lists" or run.corrected:
        return
    outcome = penstock.verify(load_id, to=make_conninfo(run.place.conninfo, dbname="postgres"), values=True)
    # Of a load with insert-new that has kept rows, only the keys are compared.
    is_right = outcome.is_verified or (outcome.agrees and outcome.has_stored_unseen)
    assert is_right, f"verify has found {outcome.problems}"


def _find_loads(run: Run, view: LedgerView) -> list[str]:
    """Return the loads that have loaded the objects: one, or several of which each had those that its hosts listed."""
    if run.scenario.theme != "lists" or run.scenario.begins_again:
        return [view.load_id]
    query = "SELECT DISTINCT load::text FROM penstock.objects WHERE target_table = %s"
    return [load_id for (load_id,) in run.observer.execute(query, [run.table])]


def _check_redone(run: Run, load_id: str, total: int) -> int:
    """Check that each fault cost at most one batch of each session; return how many rows were sent more than once."""
    while run.observer.backends(f"loader {run.scenario.seed}."):
        # They count what they did when they end.
        time.sleep(0.01)
    ((inserted,),) = run.observer.execute("SELECT n_tup_ins FROM pg_stat_user_tables WHERE relname = %s", [run.table])
    ((largest,),) = run.observer.execute(
        "SELECT max(records) FROM (SELECT sum(records) AS records FROM penstock.ranges WHERE load = %s"
        " GROUP BY xmin::text) AS batches",
        [load_id],
    )
    ends = run.strikes + len(run.loaders)
    bound = ends * run.scenario.sessions * int(largest) * _BATCH_SLACK
    assert inserted - total <= bound, f"{inserted - total} rows were sent in vain, in {ends} attempts"
    return int(inserted - total)


def _expect(run: Run) -> Counter[Row]:
    """Return the rows that the table must have."""
    if run.replaced_by is not None:
        # As soon as the load was complete.
        return run.replaced_by
    if run.scenario.mode not in MERGES or run.scenario.mode == "sync":
        return run.files.rows
    loaded = {row[0]: row for row in run.files.rows}
    before = {row[0]: row for row in BEFORE}
    return Counter(({**before, **loaded} if run.scenario.mode == "upsert" else {**loaded, **before}).values())


def _check_imported(run: Run, load_id: str) -> None:
    """Check that each object was committed once, as a whole."""
    rows = run.observer.execute(
        "SELECT o.unit, r.ranges::text, count(*) OVER (PARTITION BY o.number) FROM penstock.objects AS o"
        " LEFT JOIN penstock.ranges AS r ON r.load = o.load AND r.object = o.number WHERE o.load = %s",
        [load_id],
    )
    assert rows == [("object", "{[0,1)}", 1)] * len(run.files.texts), f"other rows of the ledger: {rows}"


def _check_object(run: Run, loads: list[str], name: str, text: bytes) -> None:
    """Check that an object's committed ranges are disjoint, cover it, with its bytes' and header's checksums.

    Those of a columnar object are ranges of rows. What a retry has stored has none of its own.
    """
    rows = run.observer.execute(
        "SELECT lower(p), upper(p), r.start, r.checksum FROM penstock.ranges AS r JOIN penstock.objects AS o"
        " ON o.load = r.load AND o.number = r.object CROSS JOIN unnest(r.ranges) AS p"
        " WHERE r.load = ANY (%s::uuid[]) AND right(o.uri, length(%s)) = %s ORDER BY 1",
        [loads, f"/{name}", f"/{name}"],
    )
    is_columnar = run.files.is_columnar
    reach = 0 if is_columnar or run.files.format == "jsonl" else text.index(b"\n") + 1
    whole = len(run.files.records[name]) if is_columnar else len(text)
    header = zlib.crc32(text[:reach])
    sums: dict[int, int] = {}
    sizes = Counter[int]()
    for start, end, first, _ in rows:
        sizes[first] += end - start
        assert start == reach, f"{name}: bytes or rows {reach} to {start} are missing or committed twice"
        sums[first] = zlib.crc32(text[start:end], sums.get(first, 0))
        reach = end
    assert reach == whole, f"{name}: committed to byte or row {reach} of {whole}"
    if is_columnar:
        return
    largest = max(sizes.values())
    limit = run.scenario.batch_bytes + 2 * run.scenario.piece_bytes
    assert largest <= limit, f"{name}: a batch of {largest} bytes, where {limit} are a batch and a block"
    assert sums == {first: checksum ^ header for _, _, first, checksum in rows}, f"{name}: checksums differ"
