"""Objects that cannot be read to their end, with --on-error reject: the others are loaded, and they are tried again."""

from __future__ import annotations

import gzip
import os
import random
import threading
from dataclasses import replace
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import pytest

from penstock.api.connect import connect_to
from penstock.api.ledger_view import LedgerView
from penstock.core.errors import PenstockError, SourceError
from penstock.core.values.job import LoadRules
from penstock.core.zstd import zstd
from support.loads import Loads, find_sums, target
from support.modes import Killed, killing_at, landing_tables, mode_target
from support.parts import rest

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.core.values.job import TargetJob
    from penstock.ledger.values import LoadRecord

REJECT = LoadRules(retry_for=0.0, on_error="reject")
ATOMIC = LoadRules(retry_for=0.0, on_error="reject", atomic=True)

# The modes in which a load fills a table, and the rules of each.
MODES = {
    "append": REJECT,
    "truncate": REJECT,
    "replace": REJECT,
    "upsert": REJECT,
    "insert-new": REJECT,
    "atomic append": ATOMIC,
    "atomic truncate": ATOMIC,
}
_ROWS = 3000


@pytest.fixture
def loads(ledger18: str) -> Loads:
    """Provide loads in small blocks into a database with table t."""
    return Loads(ledger18, piece_bytes=2000, chunk_bytes=1000, setup="CREATE TABLE t (k int PRIMARY KEY, v text)")


def text_of(first: int, count: int = _ROWS) -> bytes:
    """Return a csv file whose records gzip hardly makes shorter."""
    noise = random.Random(first)
    lines = (f"{n},{noise.getrandbits(160):040x}\n" for n in range(first, first + count))
    return ("k,v\n" + "".join(lines)).encode()


def write_files(folder: Path, *, cut: float = 0.6) -> tuple[list[Path], bytes]:
    """Write a file, one whose archive ends early, and another; return them, and the whole archive."""
    paths = [folder / name for name in ("1.csv", "2.csv.gz", "3.csv")]
    whole = gzip.compress(text_of(100_000), mtime=0)
    paths[0].write_bytes(text_of(0, 50))
    paths[1].write_bytes(whole[: int(len(whole) * cut)])
    paths[2].write_bytes(text_of(500_000, 50))
    return paths, whole


def job_of(paths: list[Path], mode: str, **options: Any) -> TargetJob:
    """Return a target of a mode."""
    mode = mode.removeprefix("atomic ")
    key = ("k",) if mode in ("upsert", "insert-new") else ()
    return mode_target(paths, mode, key=key, format="csv", has_header=True, **options)


def newest(loads: Loads) -> LoadRecord:
    """Return the newest load."""
    with LedgerView(connect_to(loads.conninfo)) as view:
        return view.loads()[-1]


@pytest.mark.part("rest")
@pytest.mark.parametrize("mode", list(MODES))
@pytest.mark.parametrize("cut", [0.9, rest(0.0005)])
def test_truncated_archive_is_left_out_and_tried_again(loads: Loads, tmp_path: Path, mode: str, cut: float) -> None:
    """Nothing of it stays, the ledger says why, and once it is repaired it is loaded once."""
    paths, whole = write_files(tmp_path, cut=cut)
    outcome = loads.run(job_of(paths, mode), rules=MODES[mode])
    assert (outcome.rows, outcome.rejected, loads.count()) == (100, 0, 100)
    assert [file.uri for file in outcome.files] == [str(paths[0]), str(paths[2])]
    (left,) = outcome.unreadable
    assert (left.uri, left.table) == (str(paths[1]), "public.t")
    assert "truncated" in left.reason
    record = newest(loads)
    assert (record.state, record.objects, record.complete_objects, record.unreadable) == ("complete", 2, 2, (left,))
    again = loads.run(job_of(paths, mode), rules=MODES[mode])
    assert (again.unreadable, loads.count()) == ((left,), 100)
    paths[1].write_bytes(whole)
    last = loads.run(job_of(paths, mode), rules=MODES[mode])
    assert (last.unreadable, loads.count()) == ((), 100 + _ROWS)
    assert (loads.execute("SELECT sum(k) FROM t"), landing_tables(loads)) == (
        [(sum(range(50)) + sum(range(100_000, 100_000 + _ROWS)) + sum(range(500_000, 500_050)),)],
        [],
    )


@pytest.mark.part("rest")
@pytest.mark.parametrize("mode", ["upsert", "atomic truncate", "replace"])
def test_committed_part_of_a_hidden_table_is_removed(loads: Loads, tmp_path: Path, mode: str) -> None:
    """Batches were committed while the archive was read: staged records are deleted, a new table begins anew."""
    paths, _ = write_files(tmp_path, cut=0.9)
    outcome = loads.run(job_of(paths, mode), rules=MODES[mode], batch_bytes=3000)
    assert (len(outcome.unreadable), loads.count(), landing_tables(loads)) == (1, 100, [])
    assert [row[1:] for row in find_sums(loads)] == [(50, 50, 0, 0), (50, 50, 0, 0)]


@pytest.mark.part("rest")
@pytest.mark.parametrize("mode", ["append", "truncate"])
def test_committed_part_of_a_table_stays_and_is_resumed(loads: Loads, tmp_path: Path, mode: str) -> None:
    """The other objects are loaded; the load is unfinished, and goes on where it stopped, by the rule of changes."""
    paths, whole = write_files(tmp_path, cut=0.9)
    with pytest.raises(SourceError) as caught:
        loads.run(job_of(paths, mode), rules=REJECT, batch_bytes=3000)
    assert caught.value.load_id is not None
    record = newest(loads)
    assert (record.state, record.complete_objects) == ("running", 2)
    assert "of it committed" in record.unreadable[0].reason
    stored = loads.count()
    assert 100 < stored < 100 + _ROWS
    with pytest.raises(SourceError):
        loads.run(job_of(paths, mode), rules=REJECT, batch_bytes=3000)
    # How far an object is read before the error ends the attempt depends on the readers.
    assert stored <= loads.count() < 100 + _ROWS
    paths[1].write_bytes(whole)
    rules = LoadRules(retry_for=0.0, on_error="reject", changed="load")
    assert loads.run(job_of(paths, mode), rules=rules).unreadable == ()
    assert (loads.count(), newest(loads).unreadable) == (100 + _ROWS, ())


@pytest.mark.parametrize("mode", ["replace", "truncate", "atomic truncate"])
def test_table_is_not_emptied_for_files_that_cannot_be_read(loads: Loads, tmp_path: Path, mode: str) -> None:
    """If none can be, the load ends with the error, as it is met before the first row."""
    paths, _ = write_files(tmp_path, cut=0.9)
    loads.execute("INSERT INTO t VALUES (-1, 'old')")
    with pytest.raises(SourceError):
        loads.run(job_of(paths[1:2], mode), rules=MODES[mode])
    assert (loads.count(), landing_tables(loads)) == (1, [])


@pytest.mark.part("rest")
def test_one_that_vanishes_is_left_out(loads: Loads, tmp_path: Path) -> None:
    """Between the listing and its turn."""
    paths = [tmp_path / f"{n}.csv" for n in range(40)]
    for number, path in enumerate(paths):
        path.write_bytes(text_of(1000 * number, 200))
    last = paths[-1]
    loads.at_piece = lambda _number: last.unlink(missing_ok=True)
    outcome = loads.run(job_of(paths, "append"), rules=REJECT, sessions=1)
    assert [item.uri for item in outcome.unreadable] == [str(last)]
    assert loads.count() == 39 * 200


def test_first_one_is_no_sample_and_gives_no_types(loads: Loads, tmp_path: Path) -> None:
    """Dialect, columns and types are found in those that can be read."""
    paths, _ = write_files(tmp_path, cut=0.05)
    paths = [paths[1], paths[0], paths[2]]
    job = mode_target(paths, "append", into="made", create=True)
    with pytest.raises(SourceError):
        loads.run(job)
    outcome = loads.run(job_of(paths, "append", into="made", create=True), rules=REJECT)
    assert (outcome.rows, len(outcome.unreadable)) == (100, 1)


@pytest.mark.parametrize("damage", ["parquet", "zst", "gz"])
def test_damaged_file_of_any_kind_is_left_out(loads: Loads, tmp_path: Path, damage: str) -> None:
    """A page of Parquet, a frame of zstd, and a byte within an archive."""
    good, bad = tmp_path / f"1.{damage}", tmp_path / f"2.{damage}"
    if damage == "parquet":
        parquet, arrow = pytest.importorskip("pyarrow.parquet"), pytest.importorskip("pyarrow")
        for path, first in ((good, 0), (bad, 100_000)):
            keys = list(range(first, first + 5000))
            table = arrow.table({"k": keys, "v": [os.urandom(20).hex() for _ in keys]})
            parquet.write_table(table, path, write_page_checksum=True, compression="none", row_group_size=1000)
    elif damage == "zst":
        for path, first in ((good, 0), (bad, 100_000)):
            path.write_bytes(zstd.compress(text_of(first, 5000)))
    else:
        for path, first in ((good, 0), (bad, 100_000)):
            path.write_bytes(gzip.compress(text_of(first, 5000)))
    data = bytearray(bad.read_bytes())
    middle = len(data) // 2
    data[middle : middle + 200] = bytes(200)
    bad.write_bytes(data)
    outcome = loads.run(target([good, bad]), rules=REJECT)
    assert ([item.uri for item in outcome.unreadable], loads.count()) == ([str(bad)], 5000)


@pytest.mark.part("rest")
def test_table_without_a_readable_file_does_not_stop_the_others(loads: Loads, tmp_path: Path) -> None:
    """It is left as it is; once its file is repaired, it is loaded."""
    paths, whole = write_files(tmp_path, cut=0.1)
    loads.execute("CREATE TABLE other (k int, v text); INSERT INTO other VALUES (-1, 'old')")
    jobs = [job_of([paths[1]], "replace", into="other"), job_of([paths[0]], "append")]
    outcome = loads.run(*jobs, rules=REJECT)
    assert [(item.uri, item.table) for item in outcome.unreadable] == [(str(paths[1]), "other")]
    assert (loads.count(), loads.count("other")) == (50, 1)
    assert newest(loads).unreadable == outcome.unreadable
    again = loads.run(*jobs, rules=REJECT)
    assert (again.load_id, again.unreadable) == (None, outcome.unreadable)
    paths[1].write_bytes(whole)
    assert loads.run(*jobs, rules=REJECT).unreadable == ()
    assert (loads.count(), loads.count("other")) == (50, _ROWS)


class _Refusing(SimpleHTTPRequestHandler):
    """Serves a folder, and answers 403 for a file that is called secret."""

    methods = ("GET", "HEAD")

    def send_head(self) -> Any:
        """Refuse, or begin the answer."""
        if "secret" in self.path and self.command in self.methods:
            self.send_error(403)
            return None
        return super().send_head()

    def log_message(self, *_: Any) -> None:
        """Print nothing."""


@pytest.mark.part("rest")
@pytest.mark.parametrize("methods", [("GET", "HEAD"), ("GET",)])
def test_url_that_is_forbidden_is_left_out(loads: Loads, tmp_path: Path, methods: tuple[str, ...]) -> None:
    """Whether the server refuses to describe it, or to send it; alone, it is an error."""
    for name in ("1.csv", "secret.csv", "3.csv"):
        (tmp_path / name).write_bytes(text_of(ord(name[0]) * 1000, 50))
    made = type("Made", (_Refusing,), {"methods": methods})
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(made, directory=str(tmp_path))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        urls = [f"http://127.0.0.1:{server.server_port}/{name}" for name in ("1.csv", "secret.csv", "3.csv")]
        job = target(tmp_path, format="csv", has_header=True)
        outcome = loads.run(replace(job, sources=tuple(urls)), rules=REJECT)
        with pytest.raises(SourceError):
            loads.run(replace(job, sources=(urls[1],)), rules=REJECT)
        server.shutdown()
    assert [item.uri for item in outcome.unreadable] == [urls[1]]
    assert "403" in outcome.unreadable[0].reason
    assert (outcome.rows, loads.count()) == (100, 100)


def test_source_that_is_missing_does_not_stop_the_others(loads: Loads, tmp_path: Path) -> None:
    """As one that vanishes later."""
    (tmp_path / "1.csv").write_bytes(text_of(0, 50))
    gone = tmp_path / "gone.csv"
    outcome = loads.run(job_of([tmp_path / "1.csv", gone], "append"), rules=REJECT)
    assert ([item.uri for item in outcome.unreadable], loads.count()) == ([str(gone)], 50)
    assert newest(loads).unreadable == outcome.unreadable
    with pytest.raises(SourceError):
        loads.run(job_of([gone], "append"), rules=REJECT)


def test_source_that_cannot_be_listed_is_named_without_its_password(loads: Loads, tmp_path: Path) -> None:
    """In the outcome and in the ledger, as objects are."""
    write_files(tmp_path)
    job = replace(job_of([tmp_path / "1.csv"], "append"), sources=(str(tmp_path / "1.csv"), "ftp://me:secret@host/a"))
    outcome = loads.run(job, rules=REJECT)
    assert [item.uri for item in outcome.unreadable] == ["ftp://host/a"]
    assert "secret" not in str(newest(loads))


def test_fault_after_the_others_are_loaded_is_retried(loads: Loads, tmp_path: Path) -> None:
    """The object that cannot be read has another number then, and is left out again."""
    loads.execute(
        "CREATE SEQUENCE tries; CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
        " IF nextval('public.tries') = 1 THEN RAISE EXCEPTION 'again' USING ERRCODE = '40001'; END IF; RETURN NULL;"
        " END $$; CREATE TRIGGER g BEFORE INSERT ON t EXECUTE FUNCTION f()"
    )
    paths, _ = write_files(tmp_path, cut=0.9)
    outcome = loads.run(job_of(paths, "upsert"), rules=replace(REJECT, retry_for=30.0))
    assert ([item.uri for item in outcome.unreadable], loads.count()) == ([str(paths[1])], 100)
    assert loads.execute("SELECT last_value > 1 FROM tries") == [(True,)]


def test_check_reports_sources_that_cannot_be_listed(loads: Loads, tmp_path: Path) -> None:
    """Beside the objects that it cannot read."""
    paths, _ = write_files(tmp_path, cut=0.9)
    gone = tmp_path / "gone.csv"
    outcome = loads.check(job_of([*paths, gone], "append"), rules=REJECT)
    assert {problem.uri for problem in outcome.problems} == {str(paths[1]), str(gone)}


def test_without_rejects_it_stops_the_load(loads: Loads, tmp_path: Path) -> None:
    """As any error of a source does."""
    paths, _ = write_files(tmp_path, cut=0.9)
    with pytest.raises(SourceError):
        loads.run(job_of(paths, "append"))


@pytest.mark.part("rest")
@pytest.mark.parametrize("mode", ["append", "upsert"])
def test_loader_that_dies_with_an_unreadable_object_loses_and_repeats_nothing(
    loads: Loads, tmp_path: Path, mode: str, rng: random.Random
) -> None:
    """At any of its statements; the next run loads the others, and the repaired one once."""
    paths, whole = write_files(tmp_path, cut=0.9)
    with killing_at(-1) as sent:
        loads.run(job_of(paths, mode), rules=REJECT)
    for point in sorted(rng.sample(range(sent[0]), 5)):
        loads.execute("DROP SCHEMA penstock CASCADE; TRUNCATE t")
        try:
            with killing_at(point):
                loads.run(job_of(paths, mode), rules=REJECT)
        except (Killed, PenstockError):
            pass
        assert loads.lingering() == 0
        outcome = loads.run(job_of(paths, mode), rules=REJECT)
        assert (len(outcome.unreadable), loads.count()) == (1, 100)
    paths[1].write_bytes(whole)
    loads.run(job_of(paths, mode), rules=REJECT)
    assert loads.count() == 100 + _ROWS
