"""The functions that the package exports, against real servers."""

from __future__ import annotations

import gzip
import io
import logging
import os
import pickle
import re
import shlex
import shutil
import socket
import threading
import urllib.request
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from psycopg.conninfo import make_conninfo

import penstock
from penstock.cli.main import main
from penstock.core.errors import ServerError
from penstock.loading.loader import Loader
from support.files import write_to
from support.loads import Loads, target

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.loading.values.outcome import LoadOutcome, LoadProgress
    from penstock.loading.values.plan import LoadPlan


@pytest.mark.part("rest")
def test_sources_of_every_kind_are_loaded_together(database18: str, tmp_path: Path) -> None:
    """Paths, text, and file objects: binary, text, compressed, with a name that is a pattern, or none."""
    (tmp_path / "1.csv").write_text("id,name\n1,a\n")
    (tmp_path / "[2].csv").write_text("id,name\n2,b\n")
    packed = io.BytesIO(gzip.compress(b"id,name\n4,d\n"))
    with (tmp_path / "[2].csv").open("rb") as file:
        sources: list[Any] = [tmp_path / "1.csv", file, io.StringIO("id,name\n3,é\n"), packed]
        outcome = penstock.load(sources, "t", to=database18, create=True)
    assert outcome.rows == 4
    assert Loads(database18).rows() == [("1", "a"), ("2", "b"), ("3", "é"), ("4", "d")]


def test_response_that_was_cut_off_is_not_loaded(database18: str) -> None:
    """Reading one raises nothing when its connection is lost: it looks as if it had ended."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            with server.accept()[0] as client:
                client.recv(4096)
                client.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\nid,name\n1,a\n")

        threading.Thread(target=answer, daemon=True).start()
        with (
            urllib.request.urlopen(f"http://127.0.0.1:{server.getsockname()[1]}/") as response,
            pytest.raises(penstock.SourceError, match="ended 8 bytes before its end"),
        ):
            penstock.load(response, "t", to=database18, create=True)


def test_password_in_the_wrong_argument_is_in_no_error(database18: str) -> None:
    """Where other loaders take the connection, the table is given."""
    with pytest.raises(penstock.PenstockError) as caught:
        penstock.load("people.csv", "postgresql://ann:hunter2@db.example.com/shop", to=database18)
    assert "hunter2" not in f"{caught.value} {caught.value!r}"


def test_file_object_is_loaded_each_time_and_a_file_once(database18: str, tmp_path: Path) -> None:
    """The ledger knows a file by its name; a copy of a stream has none that lasts."""
    path = tmp_path / "f.csv"
    path.write_text("id,name\n1,a\n")
    rows = [penstock.load(path, "t", to=database18, create=True).rows for _ in range(2)]
    rows += [penstock.load(io.StringIO("id,name\n2,b\n"), "t", to=database18).rows for _ in range(2)]
    assert rows == [1, 0, 1, 1]


@pytest.mark.parametrize("mode", ["rb", "r"])
def test_file_object_that_has_no_data_yet_is_not_at_its_end(database18: str, mode: str) -> None:
    """What a non-blocking pipe held so far is not loaded as if it were all."""
    Loads(database18).execute("CREATE TABLE t (id int, name text)")
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    with os.fdopen(reading, mode) as file, os.fdopen(writing, "wb", buffering=0) as other:
        other.write(b"id,name\n1,a\n")
        with pytest.raises(penstock.SourceError, match=f"file object .*{reading}.* has no data") as caught:
            penstock.load(file, "t", to=database18)
    assert "os.set_blocking" in (caught.value.hint or "")
    assert Loads(database18).count() == 0


@pytest.mark.parametrize("options", [{"encoding": "latin1"}, {"dialect": penstock.Dialect(encoding="WIN1252")}])
def test_encoding_of_a_text_file_object_is_refused(database18: str, tmp_path: Path, options: dict[str, Any]) -> None:
    """Its text is copied as UTF-8, which another encoding would read as other letters; UTF8 is no other."""
    path = tmp_path / "l.csv"
    path.write_text("id,name\n1,é\n", encoding="latin1")
    with (
        path.open(encoding="latin1") as file,
        pytest.raises(penstock.UsageError, match="encoding cannot be used with a text file object") as caught,
    ):
        penstock.load(file, "t", to=database18, create=True, **options)
    assert "mode 'rb'" in (caught.value.hint or "")
    for mode, given in (("r", {"encoding": "utf-8"}), ("rb", options)):
        with path.open(mode, encoding="latin1" if mode == "r" else None) as file:
            penstock.load(file, "t", to=database18, create=True, mode="replace", **given)
        assert Loads(database18).rows() == [("1", "é")]


def test_surrogate_of_a_text_file_object_is_an_error(database18: str, tmp_path: Path) -> None:
    """As errors="surrogateescape" makes of a byte that is invalid."""
    path = tmp_path / "s.csv"
    path.write_bytes(b"id,name\n1,\xe9\n")
    with (
        path.open(encoding="utf-8", errors="surrogateescape") as file,
        pytest.raises(penstock.DataError, match=r"\\udce9") as caught,
    ):
        penstock.load(file, "t", to=database18, create=True)
    assert "s.csv" in str(caught.value)


def test_warnings_are_logged_and_in_the_outcome(database18: str, caplog: pytest.LogCaptureFixture) -> None:
    """Nobody has to ask for them; what is done is logged as information."""
    caplog.set_level(logging.INFO, logger="penstock")
    text = io.StringIO("id,name\n1,\\N\n")
    outcome = penstock.load(text, "t", to=database18, create=True)
    (warning,) = outcome.warnings
    logged = [record for record in caplog.records if record.name == "penstock"]
    assert [record.levelname for record in logged if record.getMessage().startswith(warning.message)] == ["WARNING"]


def test_options_may_be_given_as_they_are_typed_or_as_values(database18: str, tmp_path: Path) -> None:
    """Rejected records are written and retried, and the ledger's loads are values."""
    bad = tmp_path / "bad.csv"
    Loads(database18).execute("CREATE TABLE t (id int PRIMARY KEY, name text)")
    outcome = penstock.load(
        io.StringIO("1;a\nx;b\n"),
        "t",
        to=database18,
        dialect=penstock.Dialect(delimiter=";"),
        header=False,
        on_error="reject",
        retry_for="5s",
        max_record=1_000_000,
        reject_file=bad,
    )
    assert (outcome.rows, outcome.rejected, bad.read_text()) == (1, 1, "x;b\n")
    (record,) = penstock.loads(to=database18)
    assert record.load_id == outcome.load_id
    assert penstock.loads(to=database18, into="t", limit=1) == [record]
    with pytest.raises(penstock.TargetError, match='table "other" does not exist'):
        penstock.loads(to=database18, into="other")
    assert penstock.loads(to=database18, since=datetime.now(UTC)) == []
    # The session's time zone is another one than this machine's.
    elsewhere = make_conninfo(database18, options="-c timezone=Pacific/Honolulu")
    assert penstock.loads(to=elsewhere, since=datetime.now() - timedelta(hours=1)) == [record]  # noqa: DTZ005
    assert penstock.loads(to=elsewhere, since=datetime.min) == [record]  # noqa: DTZ901
    bad.write_text("2;b\n")
    assert penstock.retry(record.load_id[:8], bad, to=database18).left == 0
    assert Loads(database18).rows() == [(1, "a"), (2, "b")]
    assert penstock.repair(to=database18).errors == []


def test_rejects_are_values_and_a_file(database18: str, tmp_path: Path) -> None:
    """As `penstock rejects` shows and writes them; "latest" is a load, as on the command line."""
    Loads(database18).execute("CREATE TABLE t (id int, name text)")
    path = write_to(tmp_path / "f.csv", "id,name\n1,a\nx,b\n")
    load_id = penstock.load(path, "t", to=database18, on_error="reject").load_id
    bad = tmp_path / "bad.csv"
    (cause,) = penstock.rejects("latest", bad, to=database18)
    assert (cause.count, cause.uri, cause.line, cause.sqlstate) == (1, str(path), 3, "22P02")
    assert bad.read_text() == "id,name\nx,b\n"
    assert load_id is not None
    assert penstock.rejects(load_id, to=database18) == [cause]
    bad.write_text("id,name\n2,b\n")
    assert penstock.retry("latest", bad, to=database18, into="t").left == 0
    assert penstock.rejects(load_id, to=database18) == []


def test_load_that_was_cut_short_is_resumed(database18: str, tmp_path: Path) -> None:
    """With the options that it began with, but for those that are given."""
    loads = Loads(database18, piece_bytes=20_000, chunk_bytes=1000, setup="CREATE TABLE t (id int)")
    path = write_to(tmp_path / "f.csv", "id\n" + "".join(f"{n}\n" for n in range(20_000)) + "bad\n")
    with pytest.raises(penstock.DataError):
        loads.run(target(path, header=True), sessions=1, batch_bytes=500)
    (record,) = penstock.loads(to=database18)
    assert record.state == "running"
    with pytest.raises(penstock.DataError):
        penstock.resume(record.load_id, to=database18)
    outcome = penstock.resume(record.load_id[:8], to=database18, on_error="reject", retry_for="1s")
    assert (outcome.load_id, outcome.rejected, loads.count()) == (record.load_id, 1, 20_000)
    with pytest.raises(penstock.TargetError):
        penstock.resume(record.load_id, to=database18)


@pytest.fixture
def in_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have loads commit after 100 kB."""
    run = Loader.run

    def run_in_batches(self: Loader, plan: LoadPlan, **options: Any) -> LoadOutcome:
        batch = replace(plan.batch, limit_bytes=100_000, chunk_bytes=100_000, duration_s=None)
        return run(self, replace(plan, batch=batch), **options)

    monkeypatch.setattr(Loader, "run", run_in_batches)


@pytest.mark.usefixtures("in_batches")
@pytest.mark.parametrize(
    ("options", "way"),
    [
        ({"mode": "upsert", "key": "id"}, ": run penstock loads forget {} --keep-rows, and load it again."),
        ({"mode": "truncate"}, ": run penstock loads forget {} --keep-rows, and load it again."),
        ({}, ": run penstock undo {}, and load it again."),
    ],
)
def test_hint_of_a_load_from_memory_leads_to_each_row_once(database18: str, options: Any, way: str) -> None:
    """It failed after some rows were committed, or staged. What the hint names is done, and it is loaded again."""
    loads = Loads(database18, setup="CREATE TABLE t (id int PRIMARY KEY)")
    good = "id\n" + "".join(f"{number}\n" for number in range(300_000))
    with pytest.raises(penstock.DataError) as caught:
        penstock.load(io.StringIO(good + "x\n"), "t", to=database18, sessions=1, **options)
    load_id = caught.value.load_id
    assert load_id is not None
    hint = caught.value.hint or ""
    assert hint.endswith("because its source was in memory" + way.format(load_id))
    command = shlex.split(hint.partition("run penstock ")[2].partition(", and")[0])
    assert main([*command, "--to", database18]) == 0
    penstock.load(io.StringIO(good), "t", to=database18, **options)
    assert loads.count() == 300_000


@pytest.mark.usefixtures("in_batches")
def test_note_of_a_callbacks_exception_does_not_say_to_resume_what_was_in_memory(database18: str) -> None:
    """The temporary file is gone."""
    loads = Loads(
        database18,
        setup="CREATE TABLE t (id int);"
        "CREATE FUNCTION wait() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(0.3); RETURN NULL; END';"
        "CREATE TRIGGER wait AFTER INSERT ON t FOR EACH STATEMENT EXECUTE FUNCTION wait()",
    )

    def stop(_: LoadProgress) -> None:
        if loads.count():
            raise TimeoutError

    text = "id\n" + "".join(f"{number}\n" for number in range(300_000))
    with pytest.raises(TimeoutError) as caught:
        penstock.load(io.StringIO(text), "t", to=database18, sessions=1, on_progress=stop)
    (note,) = caught.value.__notes__
    assert "penstock resume" not in note
    assert "because its source was in memory: run penstock undo " in note


def test_complete_load_whose_rejects_cannot_be_written_is_said_to_be_complete(database18: str, tmp_path: Path) -> None:
    """Who calls it again stores all rows twice."""
    loads = Loads(database18, setup="CREATE TABLE t (id int)")
    folder = tmp_path / "f"
    folder.mkdir()

    def remove(_: LoadProgress) -> None:
        shutil.rmtree(folder, ignore_errors=True)

    with pytest.raises(penstock.SourceError) as caught:
        penstock.load(
            io.StringIO("id\n1\nx\n"),
            "t",
            to=database18,
            on_error="reject",
            reject_file=folder / "bad.csv",
            on_progress=remove,
        )
    assert "The load itself succeeded: " in (caught.value.detail or "")
    assert [each.load_id for each in penstock.loads(to=database18)] == [caught.value.load_id]
    assert loads.count() == 1


def test_error_of_an_option_passes_from_a_worker_of_a_pool() -> None:
    """As any other error of ours; otherwise the pool would end its other workers."""
    with pytest.raises(penstock.UsageError) as caught:
        penstock.load("a.csv", "t", on_error="ignore")
    again = pickle.loads(pickle.dumps(caught.value))  # noqa: S301 (our own)
    assert (str(again), type(again)) == (str(caught.value), penstock.UsageError)


@pytest.mark.parametrize("is_in_memory", [True, False])
def test_load_from_memory_is_not_said_to_be_resumable(
    database18: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_in_memory: bool
) -> None:
    """Its copy is gone, and the same call again would store the committed rows once more."""
    Loads(database18, setup="CREATE TABLE t (id int)")

    def fail(*_arguments: Any, **_options: Any) -> None:
        error = ServerError("the connection is lost", hint="Resume with: penstock resume 1f2e.")
        error.load_id = "1f2e"
        raise error

    monkeypatch.setattr(Loader, "run", fail)
    path = write_to(tmp_path / "f.csv", "id\n1\n")
    with pytest.raises(penstock.ServerError) as caught:
        penstock.load(io.BytesIO(path.read_bytes()) if is_in_memory else path, "t", to=database18)
    assert ("penstock undo 1f2e" in str(caught.value.hint)) is is_in_memory
    assert ("penstock resume" in str(caught.value.hint)) is not is_in_memory


def test_job_file_is_loaded_by_its_path(database18: str, tmp_path: Path) -> None:
    """Options of the whole load override its keys; those of one target are refused, as on the command line."""
    (tmp_path / "one.csv").write_text("id,name\n1,a\n")
    job = tmp_path / "job.toml"
    job.write_text("to = 'nowhere'\n[[target]]\nsources = 'one.csv'\ninto = 'one'\ncreate = true\n")
    outcome = penstock.load(job, to=database18, sessions=1)
    assert (outcome.rows, outcome.files[0].table) == (1, "one")
    with pytest.raises(penstock.UsageError, match="create cannot be used with a job file"):
        penstock.load(str(job), to=database18, create=True)


class Bad:
    """A value that Arrow has no type for."""


@pytest.mark.parametrize(
    ("values", "row"),
    [([1, 2, "x"], 3), (["p", 5, "r"], 2), (["p", None, Bad()], 3), ([*range(1000), "x", *range(1000)], 1001)],
)
def test_bad_value_of_a_frame_is_one_error_with_row_and_column(database18: str, values: list[object], row: int) -> None:
    """Pandas keeps values of any types in a column; its own errors name no row, and are not shown beside."""
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"id": range(len(values)), "b": pandas.Series(values, dtype=object)})
    with pytest.raises(penstock.DataError) as caught:
        penstock.load(frame, "t", to=database18, create=True)
    location = caught.value.location
    assert location is not None
    assert (location.file, location.line, location.column) == ("DataFrame", row, "b")
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__ or caught.value.__context__ is None


@pytest.mark.parametrize("make", [lambda t: t, lambda t: t.to_pandas(), lambda t: __import__("polars").from_arrow(t)])
def test_value_that_the_table_refuses_is_named_by_the_row_of_the_frame(database18: str, make: Any) -> None:
    """Not by a temporary file and its record batch; 70,000 rows are two of these."""
    pyarrow = pytest.importorskip("pyarrow")
    Loads(database18).execute("CREATE TABLE t (a int, b text)")
    frame = make(pyarrow.table({"a": ["1"] * 69_999 + ["x"], "b": ["p"] * 70_000}))
    with pytest.raises(penstock.DataError) as caught:
        penstock.load(frame, "t", to=database18)
    location = caught.value.location
    assert location is not None
    assert (location.file, location.line, location.column) == (type(frame).__name__, 70_000, "a")
    assert f"{type(frame).__name__} row 70000" in (caught.value.detail or "")
    assert "penstock-" not in str(caught.value)
    assert caught.value.__cause__ is None


def test_columns_may_be_a_text_as_they_are_typed(database18: str, tmp_path: Path) -> None:
    """A text is a list of names, not of characters; so is one of a target that is made by hand."""
    (tmp_path / "f.csv").write_text("1,a\n")
    outcome = penstock.load(tmp_path / "f.csv", "t", to=database18, create=True, header=False, columns="id,v")
    assert outcome.rows == 1
    assert Loads(database18).execute("SELECT id, v FROM t") == [("1", "a")]


def test_diagnosis_is_a_value(database18: str, tmp_path: Path) -> None:
    """Of the server alone, and of a load that would be refused."""
    assert penstock.doctor(to=database18).would_load
    (tmp_path / "f.csv").write_text("a,b\n1,2\n")
    Loads(database18).execute("CREATE TABLE t (a int)")
    found = penstock.doctor("t", tmp_path / "f.csv", to=database18)
    assert not found.would_load
    assert [finding.code for finding in found.findings if finding.severity == "refusal"] == ["plan"]


def test_error_is_of_a_kind_that_the_package_exports(database18: str) -> None:
    """With a message, and a hint."""
    with pytest.raises(penstock.TargetError, match='table "none" does not exist') as caught:
        penstock.load(io.StringIO("a\n1\n"), "none", to=database18)
    assert isinstance(caught.value, penstock.PenstockError)


@pytest.mark.parametrize(
    ("given", "ours"),
    [
        ("if_exists", "mode"),
        ("if_table_exists", "mode"),
        ("name", "into"),
        ("con", "to"),
        ("sep", "delimiter"),
        ("na_values", "null"),
        ("dtype", "types"),
        ("dayfirst", "date_order"),
    ],
)
def test_argument_of_another_library_is_answered_with_ours(given: str, ours: str) -> None:
    """Those of pandas' to_sql and read_csv, and of polars' write_database."""
    options: Any = {given: "x"}
    with pytest.raises(TypeError, match=f"unexpected keyword argument '{given}'; did you mean '{ours}'"):
        penstock.load("f.csv", **options)


def test_hint_names_arguments_and_commands_as_they_are_typed(database18: str, tmp_path: Path) -> None:
    """Options of the command line would be none that a Python program can give."""
    path = write_to(tmp_path / "f.csv", "id\n1\n")
    load_id = penstock.load(path, "t", to=database18, create=True).load_id
    write_to(path, "id\n1\n2\n")
    with pytest.raises(penstock.TargetError) as caught:
        penstock.load(path, "t", to=database18)
    hint = caught.value.hint or ""
    assert "--" not in hint
    for words in ('mode="replace"', 'mode="upsert", key="LIST", changed="load"', f"penstock undo {load_id}"):
        assert words in hint
    with pytest.raises(penstock.UsageError) as refused:
        penstock.load(io.StringIO("id\n1\n"), "t", to=database18, mode="upsert")
    assert refused.value.message == 'mode="upsert" needs key'
    assert 'key="a,b"' in (refused.value.hint or "")


def test_warnings_name_arguments_and_the_source(database18: str, caplog: pytest.LogCaptureFixture) -> None:
    """In the outcome and in the log; a copied file object has no file that its reader knows."""
    text = io.StringIO("id,name\n1,NULL\n")
    warnings = penstock.load(text, "t", to=database18, create=True).warnings
    assert [warning.uri for warning in warnings] == ["StringIO"]
    hints = " ".join(warning.hint or "" for warning in warnings)
    assert "--" not in hints + caplog.text
    assert 'run: penstock.load(..., create=True, mode="replace", null=["", "NULL"])' in hints


def test_outcome_prints_the_first_line_of_the_command(database18: str, tmp_path: Path) -> None:
    """With what was not loaded."""
    path = write_to(tmp_path / "f.csv", "id\n1\nx\n")
    Loads(database18).execute("CREATE TABLE t (id int)")
    shown = [str(penstock.load(path, "t", to=database18, on_error="reject")) for _ in range(2)]
    assert re.fullmatch(
        r"loaded 1 row into public.t in .* \(.* MB/s, 1 session\) on .*, database .*, rejected 1 record", shown[0]
    )
    assert re.fullmatch("nothing to load: 1 object already loaded on .*, database .*", shown[1])
