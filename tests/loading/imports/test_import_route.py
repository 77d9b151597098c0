"""penstock load --via server: the server imports whole objects from S3, each in a transaction of its own."""

from __future__ import annotations

import bz2
import gzip
import threading
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from loading.imports.jobs import SERVER, job, put_zipped
from penstock.api.connect import connect_to
from penstock.api.ledger_view import LedgerView
from penstock.cli.main import main
from penstock.core.connect.connection import ConnectionFactory
from penstock.core.errors import DataError, PenstockError, ServerError, SourceError, TargetError, UsageError
from penstock.core.values.job import LoadJob, LoadRules
from penstock.ledger.listing import list_loads, list_objects
from support.loads import Loads

if TYPE_CHECKING:
    from pathlib import Path

    from loading.imports.conftest import Gate
    from support.s3_lab import S3Lab

pytestmark = pytest.mark.part("rest")

_BODY = b"a,b\n1,one\n2,two\n"
_ROWS = [(1, "one"), (2, "two")]

_FUNCTION = f"aws_s3.table_import_from_s3({', '.join(['text'] * 9)})"


def test_prefix_is_imported_once_and_equals_the_clients_route(s3: S3Lab, loads: Loads) -> None:
    """50 objects, plain and gzip, with quotes, nulls and backslashes; a second run finds nothing to do."""
    for number in range(50):
        body = f'a,b\n{number},"x, ""y"""\n{number + 100},\n{number + 200},back\\slash\n{number + 300},""\n'.encode()
        if number % 2:
            put_zipped(s3, f"d/part-{number:02}.csv", body)
        else:
            s3.put(f"d/part-{number:02}.csv", body)
    outcome = loads.run(job(), rules=SERVER, sessions=3)
    assert (outcome.rows, len(outcome.files), outcome.sessions) == (200, 50, 3)
    assert loads.execute("SELECT unit, count(*) FROM penstock.objects GROUP BY 1") == [("object", 50)]
    assert loads.run(job(), rules=SERVER).objects_skipped == 50
    loads.execute("CREATE TABLE u (a int, b text)")
    assert loads.run(job(into="u")).rows == 200
    assert loads.rows() == loads.rows("u")


@pytest.mark.part("main")
def test_ledger_counts_the_stored_bytes_of_imported_objects(s3: S3Lab, loads: Loads) -> None:
    """Their unit is the object, so their range says nothing of bytes."""
    put_zipped(s3, "d/a.csv.gz", _BODY)
    outcome = loads.run(job(), rules=SERVER)
    stored = len(gzip.compress(_BODY, mtime=0))
    with ConnectionFactory(loads.conninfo).connect() as connection:
        assert [each.bytes_committed for each in list_loads(connection, "penstock")] == [stored]
        (found,) = list_objects(connection, "penstock", outcome.load_id or "")
    assert (found.bytes_committed, found.rows, found.is_complete) == (stored, 2, True)


def test_null_reaches_copy_as_it_is_written(s3: S3Lab, loads: Loads) -> None:
    r"""COPY's text format: \N is null, and an escaped backslash is one."""
    s3.put("d/a.txt", b"a\tb\n1\t\\N\n2\tback\\\\slash\n")
    loads.run(job(format="text", header=True), rules=SERVER)
    assert loads.rows() == [(1, None), (2, "back\\slash")]


@pytest.mark.parametrize("mode", ["truncate", "replace"])
def test_steps_and_landings_work_as_on_the_clients_route(s3: S3Lab, loads: Loads, mode: str) -> None:
    """The table is emptied or replaced, its index dropped and rebuilt, a trigger disabled, VACUUM follows."""
    loads.execute(
        "INSERT INTO t VALUES (0, 'old'); CREATE INDEX i ON t (a);"
        "CREATE FUNCTION no() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';"
        "CREATE TRIGGER no BEFORE INSERT ON t FOR EACH ROW EXECUTE FUNCTION no()"
    )
    s3.put("d/a.csv", _BODY)
    rules = LoadRules(via="server", retry_for=0.0, indexes="rebuild", triggers="disable", autovacuum="pause")
    outcome = loads.run(job(mode=mode), rules=rules)
    assert loads.rows() == _ROWS
    assert loads.indexes() == ["i"]
    assert loads.execute("SELECT tgenabled FROM pg_trigger WHERE tgname = 'no'") == [("O",)]
    assert set(outcome.steps) >= {"upkeep"}


def test_created_table_is_imported_into(s3: S3Lab, loads: Loads) -> None:
    """Its columns are those of the header."""
    s3.put("d/a.csv", _BODY)
    loads.run(job(into="made", create=True), rules=SERVER)
    assert loads.rows("made") == [("1", "one"), ("2", "two")]


def test_object_replaced_between_the_two_looks_is_undone(s3: S3Lab, loads: Loads, gate: Gate) -> None:
    """The rows of what was imported are not committed, as it may be neither the old object nor the new one."""
    s3.put("d/a.csv", _BODY)
    with gate.holding(), gate.in_thread(lambda: loads.run(job(), rules=SERVER)) as running:
        gate.await_import()
        s3.put("d/a.csv", b"a,b\n3,three\n")
        gate.open()
        with pytest.raises(SourceError, match="was replaced while the server imported it"):
            running.result()
    assert loads.count() == 0
    assert loads.run(job(), rules=SERVER).rows == 1
    assert loads.rows() == [(3, "three")]


def test_object_replaced_after_the_listing_is_not_imported(s3: S3Lab, loads: Loads) -> None:
    """The first look has another ETag than the listing."""
    s3.put("d/a.csv", _BODY)
    with loads.loader() as loader:
        plan = loader.plan(LoadJob(targets=(job(),), rules=SERVER))
        s3.put("d/a.csv", b"a,b\n3,three\n")
        with pytest.raises(SourceError, match="was replaced while the server imported it"):
            loader.run(plan)
    assert loads.count() == 0


def test_truncated_gzip_stores_nothing_of_its_object(s3: S3Lab, loads: Loads) -> None:
    """The other object stays; the error names the one that could not be read."""
    s3.put("d/a.csv", _BODY)
    text = "".join(f"{number},{number * 7919 % 1000}\n" for number in range(90_000)).encode()
    body = gzip.compress(b"a,b\n" + text, mtime=0)
    s3.put("d/b.csv.gz", body[: len(body) // 2], encoding="gzip")
    with pytest.raises(PenstockError) as caught:
        loads.run(job(), rules=SERVER, sessions=1)
    assert "d/b.csv.gz" in str(caught.value)
    # The largest object comes first.
    assert loads.count() == 0


def test_value_that_the_table_refuses_is_named_with_its_line(s3: S3Lab, loads: Loads) -> None:
    """COPY counts lines as the file does, the header too."""
    s3.put("d/a.csv", b"a,b\n1,one\nmuch,two\n")
    with pytest.raises(DataError) as caught:
        loads.run(job(), rules=SERVER)
    assert caught.value.location is not None
    assert (caught.value.location.line, caught.value.location.column) == (3, "a")
    assert loads.count() == 0


def test_server_that_cannot_reach_the_bucket_is_an_error(s3: S3Lab, loads: Loads) -> None:
    """The load reads the object here, and the server does not find it."""
    s3.put("d/a.csv", _BODY)
    name = psycopg.conninfo.conninfo_to_dict(loads.conninfo)["dbname"]
    loads.execute(f"ALTER DATABASE {name} SET aws_s3.endpoint_url = 'http://127.0.0.1:9'")
    with pytest.raises(ServerError) as caught:
        loads.run(job(), rules=SERVER)
    assert caught.value.sqlstate == "38000"
    assert loads.count() == 0


def test_result_that_reports_no_count_is_an_error(s3: S3Lab, loads: Loads) -> None:
    """Rows that nobody has counted are not committed."""
    s3.put("d/a.csv", _BODY)
    loads.execute(
        f"ALTER FUNCTION {_FUNCTION} RENAME TO real_import;"
        "CREATE FUNCTION aws_s3.table_import_from_s3(t text, c text, o text, b text, k text, r text) RETURNS text"
        " LANGUAGE plpgsql AS $$ BEGIN PERFORM aws_s3.real_import(t, c, o, b, k, r); RETURN 'imported'; END $$"
    )
    with pytest.raises(ServerError, match="did not report how many rows") as caught:
        loads.run(job(), rules=SERVER)
    assert "imported" in (caught.value.detail or "")
    assert loads.count() == 0


def test_cancelled_import_is_undone_and_loaded_by_the_next_run(s3: S3Lab, loads: Loads, gate: Gate) -> None:
    """pg_cancel_backend, as an administrator does."""
    s3.put("d/a.csv", _BODY)
    with gate.holding(), gate.in_thread(lambda: loads.run(job(), rules=SERVER)) as running:
        loads.execute(f"SELECT pg_cancel_backend({gate.await_import()})")
        with pytest.raises(PenstockError) as caught:
            running.result()
        assert caught.value.sqlstate == "57014"
    assert loads.run(job(), rules=SERVER).rows == 2
    assert loads.rows() == _ROWS


def test_lost_backend_is_retried(s3: S3Lab, loads: Loads, gate: Gate) -> None:
    """As any fault that passes, up to --retry-for."""
    s3.put("d/a.csv", _BODY)
    rules = LoadRules(via="server", retry_for=30.0)
    with gate.holding(), gate.in_thread(lambda: loads.run(job(), rules=rules)) as running:
        loads.execute(f"SELECT pg_terminate_backend({gate.await_import()})")
        gate.open()
        assert running.result().rows == 2
    assert loads.rows() == _ROWS


def test_import_without_progress_is_reported_then_cancelled(s3: S3Lab, loads: Loads) -> None:
    """The server shows that it has read nothing, so it can be cancelled safely."""
    loads.execute(
        "CREATE FUNCTION wait() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(600); RETURN NULL; END';"
        "CREATE TRIGGER w BEFORE INSERT ON t FOR EACH STATEMENT EXECUTE FUNCTION wait()"
    )
    s3.put("d/a.csv", _BODY)
    loads.tune(import_silence_s=1.0, import_patience_s=2.0)
    with pytest.raises(SourceError, match="showed no progress and was cancelled") as caught:
        loads.run(job(), rules=SERVER)
    assert "route to S3" in (caught.value.hint or "")
    assert sum("shows no progress" in notice for notice in loads.notices) == 1


def test_import_that_runs_triggers_behind_its_last_row_is_not_cancelled(s3: S3Lab, loads: Loads) -> None:
    """So are foreign keys checked: COPY has read everything then, and shows no progress."""
    loads.execute(
        "CREATE FUNCTION wait() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(2); RETURN NULL; END';"
        "CREATE TRIGGER w AFTER INSERT ON t FOR EACH ROW EXECUTE FUNCTION wait()"
    )
    s3.put("d/a.csv", _BODY)
    loads.tune(import_silence_s=1.0, import_patience_s=2.0)
    assert loads.run(job(), rules=SERVER).rows == 2
    (notice,) = [notice for notice in loads.notices if "shows no progress" in notice]
    assert "foreign keys" in notice


def test_table_whose_triggers_move_rows_is_not_imported(s3: S3Lab, loads: Loads) -> None:
    """A trigger that fills partitions of the old kind stores them elsewhere, and COPY counts none."""
    loads.execute(
        "CREATE TABLE moved (a int, b text);"
        "CREATE FUNCTION move() RETURNS trigger LANGUAGE plpgsql AS"
        " 'BEGIN INSERT INTO public.moved VALUES (NEW.a, NEW.b); RETURN NULL; END';"
        "CREATE TRIGGER m BEFORE INSERT ON t FOR EACH ROW EXECUTE FUNCTION move()"
    )
    s3.put("d/a.csv", _BODY)
    with pytest.raises(UsageError, match="fire before or instead of INSERT"):
        loads.run(job(), rules=SERVER)
    assert (loads.count("t"), loads.count("moved")) == (0, 0)
    loads.run(job(), rules=LoadRules(via="server", retry_for=0.0, triggers="disable"))
    assert (loads.count("t"), loads.count("moved")) == (2, 0)


def test_undo_does_not_take_imported_rows_for_changed_ones(s3: S3Lab, loads: Loads) -> None:
    """The lab's function stores them in a subtransaction, whose id they have. After --partial they would be loaded."""
    s3.put("d/a.csv", _BODY)
    load_id = loads.run(job(), rules=SERVER).load_id
    with LedgerView(connect_to(loads.conninfo)) as view:
        with pytest.raises(TargetError, match="--partial cannot be used"):
            view.undo(load_id, is_partial=True)
        with pytest.raises(TargetError, match="no row of it"):
            view.undo(load_id)
    assert loads.count() == 2


def test_object_begun_by_the_clients_route_is_not_imported(s3: S3Lab, loads: Loads) -> None:
    """The server imports whole objects; the client's route resumes it."""
    text = b"a,b\n" + b"".join(b"%d,x\n" % number for number in range(40_000)) + b"much,x\n"
    s3.put("d/a.csv", text)
    with pytest.raises(DataError):
        loads.run(job(), sessions=1, batch_bytes=1)
    if not loads.count():
        pytest.skip("nothing was committed before the bad record")
    with pytest.raises(TargetError, match="is loaded already") as caught:
        loads.run(job(), rules=SERVER)
    assert caught.value.hint == "Resume with --via client."


@pytest.mark.parametrize(
    ("keys", "options", "rules", "told"),
    [
        ({"a.csv": _BODY}, {}, {"on_error": "reject"}, "--on-error reject"),
        ({"a.csv": _BODY}, {}, {"atomic": True}, "--atomic"),
        ({"a.csv": _BODY}, {"set": {"b": "x"}, "skip": ("b",)}, {}, "--set"),
        ({"a.csv": _BODY}, {"skip": ("b",), "missing": "default"}, {}, "--skip"),
        ({"a.csv": _BODY}, {"null": ("", "NULL")}, {}, "several null texts"),
        ({"a.csv": b"x\n" + _BODY}, {"skip_lines": 1}, {}, "--skip-lines"),
        ({"a.csv": _BODY}, {"mode": "upsert", "key": ("a",)}, {}, "--mode upsert"),
        ({"a.tsv": b"a\tb\n1\tx\n"}, {"format": "tsv"}, {}, "format tsv"),
        ({"a.csv": "a,b\n1,x\n".encode("utf-16")}, {}, {}, "byte-order mark"),
        ({"a.csv": "a,b\n1,x\n".encode("utf-16-le")}, {"encoding": "UTF16LE"}, {}, "encoding UTF16"),
        ({"a.csv": "a,b\n1,一\n".encode("gbk")}, {"encoding": "GBK"}, {}, "encoding GBK"),
        ({"a.csv": _BODY, "b.csv": b"b,a\none,1\n"}, {}, {}, "ordered otherwise"),
        ({"a.csv": _BODY, "b.csv.gz": gzip.compress(_BODY)}, {}, {}, "--content-encoding gzip"),
        ({"a.csv": _BODY, "b.csv.bz2": bz2.compress(_BODY)}, {}, {}, "compressed with bzip2"),
        ({"a.csv": b"\xef\xbb\xbf1,one\n"}, {"header": False}, {}, "byte-order mark"),
        ({"a.csv": b"sep=,\n" + _BODY}, {}, {}, "names a separator"),
    ],
)
def test_what_cannot_work_is_refused_before_the_first_row(
    s3: S3Lab, loads: Loads, keys: dict[str, bytes], options: dict[str, Any], rules: dict[str, Any], told: str
) -> None:
    """Each with the client's route as the remedy; nothing is recorded, and --plan says so too."""
    loads.execute("CREATE UNIQUE INDEX ON t (a)")
    for key, body in keys.items():
        s3.put(f"d/{key}", body)
    wanted = LoadRules(via="server", retry_for=0.0, **rules)
    for act in (loads.run, loads.plan):
        with pytest.raises(PenstockError) as caught:
            act(job(**options), rules=wanted)
        assert told in str(caught.value)
        assert "--via client" in (caught.value.hint or "")
    assert loads.count() == 0
    assert not loads.has_table("penstock.loads") or loads.count("penstock.loads") == 0


def test_sources_of_other_places_are_refused(loads: Loads, tmp_path: Path) -> None:
    """The server has no way to this machine's files."""
    path = tmp_path / "a.csv"
    path.write_bytes(_BODY)
    with pytest.raises(UsageError, match="sources other than S3"):
        loads.run(job(source=str(path)), rules=SERVER)


def test_missing_extension_is_told_with_what_mends_it(s3: S3Lab, loads: Loads) -> None:
    """Also a function that another role has created under its name."""
    s3.put("d/a.csv", _BODY)
    loads.execute("DROP EXTENSION aws_s3")
    with pytest.raises(TargetError, match="extension aws_s3 does not exist") as caught:
        loads.run(job(), rules=SERVER)
    assert "CREATE EXTENSION aws_s3 CASCADE" in (caught.value.hint or "")
    arguments = ", ".join(["text"] * 6)
    loads.execute(
        "CREATE SCHEMA IF NOT EXISTS aws_s3;"
        f"CREATE FUNCTION aws_s3.table_import_from_s3({arguments}) RETURNS text LANGUAGE sql AS 'SELECT 1::text';"
        f"ALTER FUNCTION aws_s3.table_import_from_s3({arguments}) OWNER TO pg_monitor"
    )
    with pytest.raises(TargetError, match="does not belong to extension aws_s3"):
        loads.run(job(), rules=SERVER)


def test_server_without_the_extension_is_told(s3: S3Lab, database18: str) -> None:
    """Where it cannot be created either, the client's route is the remedy."""
    s3.put("d/a.csv", _BODY)
    with pytest.raises(TargetError, match="the server has no extension aws_s3") as caught:
        Loads(database18, setup="CREATE TABLE t (a int, b text)").run(job(), rules=SERVER)
    assert "--via client" in (caught.value.hint or "")


def test_missing_rights_are_told_with_the_grants(s3: S3Lab, loads: Loads) -> None:
    """Of the function for a role that may load; of the table as on the client's route."""
    s3.put("d/a.csv", _BODY)
    role = f"r_{psycopg.conninfo.conninfo_to_dict(loads.conninfo)['dbname']}"
    loads.execute(f"CREATE ROLE {role}; GRANT CREATE ON SCHEMA public TO {role}")
    try:
        other = Loads(loads.conninfo, role=role)
        with pytest.raises(TargetError) as caught:
            other.run(job(), rules=SERVER)
        assert "permission denied for table" in caught.value.message
        loads.execute(f"GRANT INSERT, SELECT ON t TO {role}")
        loads.execute(f"REVOKE ALL ON FUNCTION {_FUNCTION} FROM PUBLIC")
        with pytest.raises(TargetError, match="may not call") as caught:
            other.run(job(), rules=SERVER)
        assert f'GRANT USAGE ON SCHEMA aws_s3 TO "{role}"; GRANT EXECUTE' in (caught.value.hint or "")
    finally:
        loads.execute(f"DROP OWNED BY {role}; DROP ROLE {role}")


def test_missing_region_is_told(s3: S3Lab, loads: Loads, monkeypatch: pytest.MonkeyPatch) -> None:
    """The function needs it as an argument."""
    s3.put("d/a.csv", _BODY)
    monkeypatch.delenv("AWS_REGION")
    with pytest.raises(TargetError, match="region of the bucket is not known") as caught:
        loads.run(job(), rules=SERVER)
    assert caught.value.hint == "Set AWS_REGION to it."


def test_plan_says_which_route(s3: S3Lab, loads: Loads, capsys: pytest.CaptureFixture[str]) -> None:
    """On the command line."""
    s3.put("d/a.csv", _BODY)
    arguments = ["load", "s3://lab/d/", "--into", "t", "--to", loads.conninfo, "--no-record"]
    assert main([*arguments, "--via", "server", "--plan"]) == 0
    assert "route     server: it imports each object" in capsys.readouterr().out
    assert main([*arguments, "--via", "server", "--check"]) == UsageError.exit_code
    assert main([*arguments, "--via", "server", "--quiet"]) == 0
    assert loads.rows() == _ROWS


def test_job_file_names_the_route(s3: S3Lab, loads: Loads, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """By key via."""
    s3.put("d/a.csv", _BODY)
    path = tmp_path / "job.toml"
    path.write_text(f'to = "{loads.conninfo}"\nvia = "server"\n[[target]]\nsources = "s3://lab/d/"\ninto = "t"\n')
    assert main(["load", str(path), "--quiet", "--no-record"]) == 0
    assert loads.execute("SELECT DISTINCT unit FROM penstock.objects") == [("object",)]


def test_sessions_have_the_server_look_for_their_client(s3: S3Lab, loads: Loads, gate: Gate) -> None:
    """So that the import of a killed client ends."""
    s3.put("d/a.csv", _BODY)
    loads.execute(
        "CREATE TABLE seen AS SELECT ''::text AS value;"
        "CREATE FUNCTION see() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
        " UPDATE public.seen SET value = current_setting('client_connection_check_interval'); RETURN NULL; END $$;"
        "CREATE TRIGGER s BEFORE INSERT ON t FOR EACH STATEMENT EXECUTE FUNCTION see()"
    )
    loads.run(job(), rules=SERVER)
    assert loads.rows("seen") == [("2s",)]


def test_threads_end_with_the_load(s3: S3Lab, loads: Loads) -> None:
    """None is left that holds a session."""
    s3.put("d/a.csv", _BODY)
    loads.run(job(), rules=SERVER)
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("penstock-session")]
