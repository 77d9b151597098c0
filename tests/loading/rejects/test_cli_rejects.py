"""`--on-error reject`, `penstock rejects` and `penstock retry` as typed."""

from __future__ import annotations

import gzip
import os
import resource
import shlex
import shutil
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
import pytest

from penstock.ledger.rejects import RejectStore

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.core.connect.connection import Connection
    from support.command import Finished

    Run = Callable[..., Finished]


@pytest.fixture
def numbers(database18: str, tmp_path: Path) -> str:
    """Provide a CSV file of four records, two of which table t (a int, b text not null) refuses."""
    with psycopg.connect(database18, autocommit=True) as connection:
        connection.execute("CREATE TABLE t (a int, b text NOT NULL)")
    path = tmp_path / "numbers.csv"
    path.write_text("a,b\n1,x\ntwo,y\n3,\n4,z\n")
    return str(path)


def rows(database: str) -> list[int]:
    """Return the table's numbers."""
    with psycopg.connect(database) as connection:
        return [row[0] for row in connection.execute("SELECT a FROM t ORDER BY a")]


def test_bad_records_stop_a_load_by_default(penstock: Run, database18: str, numbers: str) -> None:
    """Nothing stays of a load that is smaller than a batch."""
    finished = penstock("load", numbers, "--into", "t", "--to", database18)
    assert (finished.code, rows(database18)) == (5, [])
    assert "No rows were loaded." in finished.err


def test_command_in_a_message_can_be_typed_as_it_stands(penstock: Run, database18: str, numbers: str) -> None:
    """It names the database and the ledger's schema, as the load did."""
    to = ("--to", database18, "--ledger-schema", "own")
    finished = penstock("load", numbers, "--into", "t", "--on-error", "reject", *to)
    words = shlex.split(finished.out.partition("see penstock ")[2].splitlines()[0])
    assert words[2:] == list(to)
    assert "2 records rejected" in penstock(*words).out


def test_hint_as_json_names_the_ledger_too(penstock: Run, database18: str, numbers: str) -> None:
    """As the text has it."""
    to = ("--to", database18, "--ledger-schema", "own")
    penstock("load", numbers, "--into", "t", "--on-error", "reject", *to)
    refused = penstock("loads", "show", "0a1b2c3d4e", "--json", *to)
    assert f"penstock loads {shlex.join(to)}" in refused.object["error"]["hint"]
    assert f"penstock loads {shlex.join(to)}" in refused.err


@pytest.mark.part("rest")
def test_quiet_load_with_rejects_writes_one_line(penstock: Run, database18: str, numbers: str) -> None:
    """With the load's id and how many there are; the next run, which skips the file, names the same load."""
    command = ["load", numbers, "--into", "t", "--on-error", "reject", "--quiet", "--to", database18]
    finished = penstock(*command)
    (record,) = penstock("loads", "--to", database18, "--json").object["loads"]
    assert (finished.code, finished.out) == (3, "")
    assert (
        finished.err == f"rejected 2 records: see penstock rejects {record['load_id']} --to {shlex.quote(database18)}\n"
    )
    again = penstock(*command)
    assert (again.code, again.out, again.err.count("\n")) == (3, "", 1)
    assert f"2 records rejected by load {record['load_id']}" in again.err


def test_loads_show_how_many_records_each_has_rejected(penstock: Run, database18: str, numbers: str) -> None:
    """Until they are loaded by a retry."""
    penstock("load", numbers, "--into", "t", "--on-error", "reject", "--to", database18)
    _, head, line = penstock("loads", "--to", database18).out.splitlines()
    assert line[: head.index("rejected") + len("rejected")].endswith(" 2")
    with psycopg.connect(database18, autocommit=True) as connection:
        connection.execute("ALTER TABLE t ALTER COLUMN b DROP NOT NULL")
    assert penstock("retry", "latest", "--to", database18).code == 3
    (record,) = penstock("loads", "--to", database18, "--json").object["loads"]
    assert record["rejected"] == 1


@pytest.mark.part("rest")
def test_latest_is_the_newest_load_with_rejected_records(
    penstock: Run, database18: str, numbers: str, tmp_path: Path
) -> None:
    """A load behind it that rejected none does not count; without any there is an error."""
    to = ("--to", database18)
    none = penstock("rejects", "latest", *to)
    assert (none.code, "no load has rejected records" in none.err) == (6, True)
    penstock("load", numbers, "--into", "t", "--on-error", "reject", *to)
    (record,) = penstock("loads", *to, "--json").object["loads"]
    (tmp_path / "good.csv").write_text("a,b\n9,x\n")
    assert penstock("load", str(tmp_path / "good.csv"), "--into", "t", *to).code == 0
    assert penstock("rejects", "latest", *to, "--json").object["load_id"] == record["load_id"]
    assert penstock("rejects", "latest", "--discard", *to).code == 0
    assert penstock("rejects", "latest", *to).code == 6


@pytest.mark.part("rest")
def test_rejected_records_are_told_shown_corrected_and_loaded(
    penstock: Run, database18: str, numbers: str, tmp_path: Path
) -> None:
    """The way of a bad record: exit code 3, its cause, a file, an editor, and in."""
    file = tmp_path / "rejects.csv"
    to = ("--to", database18)
    finished = penstock(
        "load", numbers, "--into", "t", "--on-error", "reject", "--reject-file", str(file), "--json", *to
    )
    assert (finished.code, finished.object["rows"], finished.object["rejected"]) == (3, 2, 2)
    assert f"rejected records are in {file}" in finished.err
    assert file.read_text() == "a,b\ntwo,y\n3,\n"
    load_id = finished.object["load_id"]
    place = f" on {finished.object['server']}, database {finished.object['database']}"
    shown = penstock("rejects", load_id, *to)
    assert shown.code == 0
    assert f"2 records rejected of load {load_id}{place}\n" in shown.out
    assert 'invalid input syntax for type integer: "...", column "a" (SQLSTATE 22P02)' in shown.out
    assert f'first {numbers} line 3: invalid input syntax for type integer: "two"' in shown.out
    told = penstock("rejects", load_id[:8], "--json", *to).object
    assert (told["server"], told["database"]) == (finished.object["server"], finished.object["database"])
    causes = told["causes"]
    assert [(cause["sqlstate"], cause["count"], cause["raw"]) for cause in causes] == [
        ("22P02", 1, "two,y"),
        ("23502", 1, "3,"),
    ]
    again = penstock("retry", load_id, *to)
    see = f"penstock rejects {load_id} {shlex.join(to)}"
    assert (again.code, again.out) == (
        3,
        f"loaded 0 rejected records{place}, 2 are left: see {see}\n",
    )
    file.write_text("a,b\n2,y\n3,z\n")
    last = penstock("retry", load_id, str(file), *to)
    assert (last.code, last.out, rows(database18)) == (
        0,
        f"loaded 2 rejected records{place}, none remain\n",
        [1, 2, 3, 4],
    )
    assert penstock("retry", load_id, str(file), *to).code == 6
    assert penstock("repair", *to).out == f"nothing to repair{place}\n"
    repaired = penstock("repair", "--plan", "--json", *to).object
    assert (repaired["server"], repaired["steps"]) == (finished.object["server"], [])


@pytest.mark.part("rest")
def test_rejected_records_of_an_upsert_are_corrected_and_merged(
    penstock: Run, database18: str, numbers: str, tmp_path: Path
) -> None:
    """Both those that COPY refused and those that the merge did, by one command; what is refused again remains."""
    with psycopg.connect(database18, autocommit=True) as connection:
        connection.execute("ALTER TABLE t ADD PRIMARY KEY (a); INSERT INTO t VALUES (2, 'old')")
    file = tmp_path / "rejects.csv"
    options = ("--mode", "insert-new", "--key", "a", "--on-error", "reject", "--reject-file", str(file), "--json")
    finished = penstock("load", numbers, "--into", "t", *options, "--to", database18)
    assert (finished.code, finished.object["rows"], finished.object["rejected"]) == (3, 2, 2)
    assert file.read_text() == "a,b\ntwo,y\n3,\n"
    load_id = finished.object["load_id"]
    file.write_text("a,b\n2,y\n3,\n")
    again = penstock("retry", load_id, str(file), "--json", "--to", database18)
    assert (again.code, again.object["left"], rows(database18)) == (3, 1, [1, 2, 4])
    assert penstock("rejects", load_id, "--to", database18).code == 0
    with psycopg.connect(database18, autocommit=True) as connection:
        connection.execute("ALTER TABLE t ALTER b DROP NOT NULL")
    last = penstock("retry", again.object["load_id"], "--to", database18)
    assert (last.code, rows(database18)) == (0, [1, 2, 3, 4])
    with psycopg.connect(database18) as connection:
        assert connection.execute("SELECT count(*) FROM penstock.rejects").fetchone() == (0,)


@pytest.mark.part("rest")
def test_corrected_file_that_lacks_rejected_records_of_an_upsert_is_refused(
    penstock: Run, database18: str, numbers: str, tmp_path: Path
) -> None:
    """The merge removes all of them from the ledger, so those that the file lacks would be lost."""
    with psycopg.connect(database18, autocommit=True) as connection:
        connection.execute("ALTER TABLE t ADD PRIMARY KEY (a)")
    options = ("--mode", "upsert", "--key", "a", "--on-error", "reject", "--json")
    load_id = penstock("load", numbers, "--into", "t", *options, "--to", database18).object["load_id"]
    file = tmp_path / "part.csv"
    file.write_text("a,b\n2,y\n")
    assert (penstock("retry", load_id, str(file), "--to", database18).code, rows(database18)) == (6, [1, 4])
    file.write_text("a,b\n2,y\n3,z\n")
    assert (penstock("retry", load_id, str(file), "--to", database18).code, rows(database18)) == (0, [1, 2, 3, 4])
    # Nothing is left to be retried.
    assert penstock("retry", load_id, "--to", database18).code == 0


@pytest.mark.part("rest")
def test_reject_files_of_unlike_files_are_retried_one_by_one(penstock: Run, database18: str, tmp_path: Path) -> None:
    """Each by its header; the name of the table decides where headers are the same."""
    with psycopg.connect(database18, autocommit=True) as connection:
        connection.execute("CREATE TABLE t (a int, b text)")
    (tmp_path / "1.csv").write_text("a,b\n1,x\nbad,y\n")
    (tmp_path / "2.csv").write_text("b,a\nx,2\ny,worse\n")
    file, to = tmp_path / "r.csv", ("--to", database18)
    command = ["load", str(tmp_path / "*.csv"), "--into", "t", "--on-error", "reject", "--reject-file", str(file)]
    assert penstock(*command, *to).code == 3
    file.write_text("a,b\n3,y\n")
    assert (penstock("retry", "latest", str(file), *to).code, rows(database18)) == (3, [1, 2, 3])
    other = tmp_path / "r-2.csv"
    other.write_text("b,a\ny,4\n")
    assert penstock("retry", "latest", str(other), "--into", "s", *to).code == 6
    assert (penstock("retry", "latest", str(other), "--into", "t", *to).code, rows(database18)) == (0, [1, 2, 3, 4])


@pytest.mark.part("rest")
def test_file_that_cannot_be_read_is_told_of(penstock: Run, database18: str, numbers: str, tmp_path: Path) -> None:
    """By the load, also with --quiet, and by loads, as text and as JSON; the exit code is that of rejected records."""
    bad = tmp_path / "bad.csv.gz"
    bad.write_bytes(gzip.compress(b"a,b\n" + b"".join(b"%d,x\n" % n for n in range(10, 5000)))[:-20])
    Path(numbers).write_text("a,b\n1,x\n")
    command = ["load", str(tmp_path / "*.csv*"), "--into", "t", "--on-error", "reject", "--to", database18]
    finished = penstock(*command)
    assert (finished.code, rows(database18)) == (3, [1])
    assert f"not loaded: {bad} cannot be read: " in finished.out
    again = penstock(*command, "--quiet")
    assert (again.code, again.out) == (3, "")
    assert f"not loaded: {bad} cannot be read: " in again.err
    shown = penstock("loads", "--to", database18)
    assert shown.out.count(f": {bad}: ") == 2
    for record in penstock("loads", "--json", "--to", database18).object["loads"]:
        (item,) = record["unreadable"]
        assert (record["state"], item["uri"], "truncated" in item["reason"]) == ("complete", str(bad), True)
        assert f": {bad}: " in penstock("loads", "show", record["load_id"], "--to", database18).out
    assert penstock(*command, "--json").object["unreadable"][0]["uri"] == str(bad)


def test_load_says_how_to_see_its_rejects(penstock: Run, database18: str, numbers: str) -> None:
    """In its result, as text."""
    finished = penstock("load", numbers, "--into", "t", "--on-error", "reject", "--to", database18)
    assert finished.code == 3
    assert "rejected 2 records: see penstock rejects " in finished.out


def test_too_many_rejects_are_an_error(penstock: Run, database18: str, numbers: str) -> None:
    """With some of them, and nothing stays."""
    options = ("--on-error", "reject", "--max-rejects", "1", "--sessions", "1")
    finished = penstock("load", numbers, "--into", "t", *options, "--to", database18)
    assert (finished.code, rows(database18)) == (5, [])
    assert "more than 1 record was rejected" in finished.err
    assert "numbers.csv line 3" in finished.err


def test_stopped_load_is_resumed_rejecting(penstock: Run, database18: str, numbers: str) -> None:
    """Options for bad records are not part of what a load is."""
    finished = penstock(
        "load", numbers, "--into", "t", "--on-error", "reject", "--max-rejects", "1", "--to", database18
    )
    assert finished.code == 5
    finished = penstock("load", numbers, "--into", "t", "--on-error", "reject", "--to", database18)
    assert (finished.code, rows(database18)) == (3, [1, 4])


@pytest.mark.part("rest")
def test_reject_file_of_a_load_that_has_not_ended_is_said_to_be_early(
    penstock: Run, database18: str, numbers: str, tmp_path: Path
) -> None:
    """What resumes the load may reject other records, and a retry pairs records by their place."""
    command = ["rejects", "latest", "--reject-file", str(tmp_path / "bad.csv"), "--to", database18]
    penstock("load", numbers, "--into", "t", "--on-error", "reject", "--to", database18)
    assert "has not ended" not in penstock(*command).err
    with psycopg.connect(database18, autocommit=True) as connection:
        connection.execute("UPDATE penstock.loads SET state = 'running'")
    assert "the load has not ended: when it has, write the file again" in penstock(*command).err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--max-rejects", "3"), "--max-rejects needs --on-error reject"),
        (("--reject-file", "x"), "--reject-file needs --on-error reject"),
    ],
)
def test_options_that_make_no_sense_are_refused(
    penstock: Run, database18: str, numbers: str, options: tuple[str, ...], message: str
) -> None:
    """Before anything is done."""
    finished = penstock("load", numbers, "--into", "t", "--to", database18, *options)
    assert finished.code == 2
    assert message in finished.err


def test_pipe_that_is_spooled_can_have_its_rejects_found_again(
    penstock: Run, database18: str, numbers: str, tmp_path: Path
) -> None:
    """The merge refuses one record, whose bytes are read from the spool."""
    with psycopg.connect(database18, autocommit=True) as connection:
        connection.execute("ALTER TABLE t ADD PRIMARY KEY (a)")
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    text = Path(numbers).read_text()
    writer = threading.Thread(target=lambda: pipe.write_text(text))
    writer.start()
    options = ("--mode", "upsert", "--key", "a", "--on-error", "reject", "--spool", "--json", "--header")
    finished = penstock("load", str(pipe), "--into", "t", *options, "--format", "csv", "--to", database18)
    writer.join()
    assert (finished.code, finished.object["rows"], finished.object["rejected"]) == (3, 2, 2)
    causes = penstock("rejects", finished.object["load_id"], "--json", "--to", database18).object["causes"]
    assert sorted(cause["raw"] for cause in causes) == ["3,", "two,y"]


@pytest.mark.parametrize("name", ["numbers.csv", "hard-link.csv", "fifo", "/dev/full"])
def test_reject_file_that_is_no_new_file_is_refused_before_the_load(
    penstock: Run, database18: str, numbers: str, tmp_path: Path, name: str
) -> None:
    """The source under any name, a pipe, a device: each is what it was, and nothing is loaded."""
    (tmp_path / "hard-link.csv").hardlink_to(numbers)
    os.mkfifo(tmp_path / "fifo")
    path = tmp_path / name
    before = (path.lstat().st_ino, path.lstat().st_mode, Path(numbers).read_text())
    options = ("--on-error", "reject", "--reject-file", str(path), "--to", database18)
    finished = penstock("load", numbers, "--into", "t", *options)
    assert (finished.code, rows(database18)) == (4, [])
    assert f'error: will not replace "{path}": it is ' in finished.err
    assert (path.lstat().st_ino, path.lstat().st_mode, Path(numbers).read_text()) == before


def test_reject_file_in_a_folder_that_is_not_there_is_refused_before_the_load(
    penstock: Run, database18: str, numbers: str, tmp_path: Path
) -> None:
    """Not when all else is done."""
    path = tmp_path / "nowhere" / "rejects.csv"
    options = ("--on-error", "reject", "--reject-file", str(path), "--to", database18)
    finished = penstock("load", numbers, "--into", "t", *options)
    assert (finished.code, rows(database18)) == (4, [])
    assert f'error: could not write "{path}": No such file or directory' in finished.err


def test_rejects_are_not_written_over_the_source(penstock: Run, database18: str, numbers: str, tmp_path: Path) -> None:
    """Which the ledger knows, also long after the load."""
    finished = penstock("load", numbers, "--into", "t", "--on-error", "reject", "--json", "--to", database18)
    link = tmp_path / "hard-link.csv"
    link.hardlink_to(numbers)
    for path in (numbers, str(link)):
        again = penstock("rejects", finished.object["load_id"], "--reject-file", path, "--to", database18)
        assert (again.code, Path(numbers).read_text()) == (4, "a,b\n1,x\ntwo,y\n3,\n4,z\n")
        assert "it is a source of the load" in again.err


def test_full_disk_leaves_no_reject_file(penstock: Run, database18: str, numbers: str, tmp_path: Path) -> None:
    """Nor half of one; the file that was there stays."""
    Path(numbers).write_text("a,b\n" + f"two,{'y' * 5000}\n" * 2)
    loaded = penstock("load", numbers, "--into", "t", "--on-error", "reject", "--json", "--to", database18)
    folder = tmp_path / "small"
    folder.mkdir()
    (folder / "rejects.csv").write_text("old")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, before[1]))
    try:
        file = str(folder / "rejects.csv")
        finished = penstock("rejects", loaded.object["load_id"], "--reject-file", file, "--to", database18)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert (finished.code, list(folder.iterdir()), Path(file).read_text()) == (4, [Path(file)], "old")
    assert f'could not write "{file}": File too large' in finished.err


def test_json_is_one_object_though_the_reject_file_cannot_be_written(
    penstock: Run, database18: str, numbers: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The result says that the load is complete.

    The later failure is an error on standard error, and in the exit code.
    """
    file = tmp_path / "folder" / "rejects.csv"
    file.parent.mkdir()
    count = RejectStore.count_rejected

    def lose_the_folder(self: RejectStore, connection: Connection) -> int:
        shutil.rmtree(file.parent, ignore_errors=True)
        return count(self, connection)

    monkeypatch.setattr(RejectStore, "count_rejected", lose_the_folder)
    options = ["--on-error", "reject", "--reject-file", str(file), "--json", "--to", database18]
    finished = penstock("load", numbers, "--into", "t", *options)
    assert (finished.code, finished.object["rows"], finished.object["rejected"]) == (4, 2, 2)
    assert f'error: could not write "{file}"' in finished.err


def test_rejects_are_not_discarded_in_place_of_being_written(
    penstock: Run, database18: str, numbers: str, tmp_path: Path
) -> None:
    """The ledger has the only copy."""
    to = ("--to", database18)
    load_id = penstock("load", numbers, "--into", "t", "--on-error", "reject", "--json", *to).object["load_id"]
    file = tmp_path / "rejects.csv"
    finished = penstock("rejects", load_id, "--discard", "--reject-file", str(file), *to)
    assert finished.code == 2
    assert "--discard cannot be used with --reject-file" in finished.err
    assert penstock("rejects", load_id, "--reject-file", str(file), *to).code == 0
    assert file.read_text() == "a,b\ntwo,y\n3,\n"


@pytest.mark.parametrize("times", [1, 5])
def test_ctrl_c_behind_the_last_row_does_not_hide_what_was_rejected(
    penstock: Run, database18: str, numbers: str, monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    """Rejected records are counted again.

    If that is interrupted too, the load is not reported as one without rejects.
    """
    count_rejected = RejectStore.count_rejected
    calls: list[int] = []

    class Store(RejectStore):
        def count_rejected(self, connection: Connection) -> int:
            calls.append(1)
            if len(calls) <= times:
                raise KeyboardInterrupt
            return count_rejected(self, connection)

    monkeypatch.setattr("penstock.loading.steps.columns.RejectStore", Store)
    finished = penstock("load", numbers, "--into", "t", "--on-error", "reject", "--json", "--to", database18)
    assert finished.code == 3
    assert finished.object["rejected"] == (2 if times == 1 else None)
    assert ("rejected records were not counted: interrupted" in finished.err) == (times > 1)
