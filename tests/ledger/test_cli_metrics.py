"""`penstock loads --metrics`: what the ledger knows of each table, for Prometheus."""

from __future__ import annotations

import stat
from typing import TYPE_CHECKING

import psycopg
import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as read_openmetrics
from prometheus_client.parser import text_string_to_metric_families as read_prometheus

from penstock.cli.output import REJECTS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from prometheus_client import Metric

    from support.command import Finished


def values_of(families: Iterable[Metric], name: str) -> dict[str, float]:
    """Return the values of a metric by table."""
    (family,) = [family for family in families if family.name == f"penstock_{name}"]
    assert family.documentation
    assert family.type == "gauge"
    return {sample.labels["table"]: sample.value for sample in family.samples}


@pytest.fixture
def loaded(database18: str, tmp_path: Path, penstock: Callable[..., Finished]) -> str:
    """Provide a database with loads: complete, with rejected records, an upsert, and one cut short."""
    with psycopg.connect(database18, autocommit=True) as connection:
        connection.execute("CREATE TABLE n (a int PRIMARY KEY); CREATE TABLE u (a int PRIMARY KEY)")
        connection.execute('CREATE TABLE "qu""ote\\" (a int)')
    path = tmp_path / "numbers.csv"
    path.write_text("a\n1\n2\nthree\n4\n")
    to = ("--to", database18)
    reject = ("--on-error", "reject")
    assert penstock("load", str(path), "--into", "n", *reject, *to).code == REJECTS
    assert penstock("load", str(path), "--into", "u", "--mode", "upsert", "--key", "a", *reject, *to).code == REJECTS
    path = tmp_path / "good.csv"
    path.write_text("a\n1\n2\n")
    assert penstock("load", str(path), "--into", '"qu""ote\\"', *to).code == 0
    with psycopg.connect(database18, autocommit=True) as connection:
        # As a load leaves it that is killed before its last step.
        connection.execute("UPDATE penstock.loads SET state = 'running' WHERE NOT tables && '{public.n,public.u}'")
    return database18


def test_parsers_of_prometheus_read_the_metrics(loaded: str, penstock: Callable[..., Finished]) -> None:
    """Last success, rows, rejects and unfinished loads by table, in both formats."""
    shown = penstock("loads", "--metrics", "--to", loaded)
    assert shown.code == 0
    for read in (read_openmetrics, read_prometheus):
        families = list(read(shown.out))
        odd = 'public.qu"ote\\'
        assert values_of(families, "stored_rows") == {"public.n": 3, "public.u": 3, odd: 2}
        assert values_of(families, "rejected_records") == {"public.n": 1, "public.u": 1, odd: 0}
        assert values_of(families, "unfinished_loads") == {"public.n": 0, "public.u": 0, odd: 1}
        assert values_of(families, "active_loads") == {"public.n": 0, "public.u": 0, odd: 0}
        success = values_of(families, "last_success_timestamp_seconds")
        begun = values_of(families, "oldest_unfinished_timestamp_seconds")
        assert (set(success), set(begun)) == ({"public.n", "public.u"}, {odd})
        assert max(success.values()) - begun[odd] < 60


@pytest.mark.parametrize("is_recorded_bare", [False, True])
def test_table_that_a_load_creates_without_its_schema_is_counted_once(
    database18: str, tmp_path: Path, penstock: Callable[..., Finished], is_recorded_bare: bool
) -> None:
    """With its schema, also if an earlier version has recorded it without; and loads are listed by either name."""
    to = ("--to", database18)
    for name in ("a", "b"):
        path = tmp_path / name
        path.write_text(f"k,v\n1,{name}\n")
        assert penstock("load", str(path), "--into", "made", "--create", *to).code == 0
    with psycopg.connect(database18, autocommit=True) as connection:
        connection.execute("CREATE SCHEMA other; CREATE TABLE other.made (k text, v text)")
        if is_recorded_bare:
            connection.execute("UPDATE penstock.loads SET tables = '{made}'")
    assert penstock("load", str(path), "--into", "other.made", *to).code == 0
    families = list(read_openmetrics(penstock("loads", "--metrics", *to).out))
    assert values_of(families, "stored_rows") == {"public.made": 2, "other.made": 1}
    assert set(values_of(families, "last_success_timestamp_seconds")) == {"public.made", "other.made"}
    for into, count in (("made", 3), ("public.made", 2)):
        listed = penstock("loads", "--into", into, "--json", *to).object["loads"]
        assert len(listed) == count
        assert {*listed[0]["tables"]} == {"public.made"}


def test_records_that_are_retried_are_no_rejects(
    loaded: str, tmp_path: Path, penstock: Callable[..., Finished]
) -> None:
    """They are rows then."""
    with psycopg.connect(loaded, autocommit=True) as connection:
        connection.execute("ALTER TABLE n ALTER a TYPE text")
        (load_id,) = connection.execute("SELECT id::text FROM penstock.loads WHERE tables = '{public.n}'").fetchone()
    assert penstock("retry", load_id, "--to", loaded).code == 0
    families = list(read_openmetrics(penstock("loads", "--metrics", "--to", loaded).out))
    assert values_of(families, "stored_rows")["public.n"] == 4
    assert values_of(families, "rejected_records")["public.n"] == 0


def test_textfile_is_replaced_as_a_whole(
    loaded: str, database18: str, tmp_path: Path, penstock: Callable[..., Finished]
) -> None:
    """Another user may read it, and nothing else is left in the folder; after an error the old one stays."""
    folder = tmp_path / "collector"
    folder.mkdir()
    path = folder / "penstock.prom"
    path.write_text("old")
    assert penstock("loads", "--metrics", "--textfile", str(path), "--to", "host=/nowhere").code == 7
    assert path.read_text() == "old"
    written = penstock("loads", "--metrics", "--textfile", str(path), "--to", loaded)
    assert (written.code, written.out) == (0, "")
    assert path.read_text() == penstock("loads", "--metrics", "--to", loaded).out
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    assert list(folder.iterdir()) == [path]


def test_database_without_loads_has_no_samples(database18: str, penstock: Callable[..., Finished]) -> None:
    """The text is still one that parsers read."""
    shown = penstock("loads", "--metrics", "--to", database18)
    assert not any(family.samples for family in read_openmetrics(shown.out))


@pytest.mark.parametrize("options", [["--textfile", "f"], ["--metrics", "--json"], ["--metrics", "--limit", "3"]])
def test_options_that_metrics_would_ignore_are_refused(options: list[str], penstock: Callable[..., Finished]) -> None:
    """Each by its name."""
    refused = penstock("loads", *options)
    assert refused.code == 2
    assert options[0] in refused.err
