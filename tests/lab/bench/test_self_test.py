"""The self-test on real servers: every step works, nothing stays, and the report names nobody."""

from __future__ import annotations

import getpass
import json
import os
import platform
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from penstock.core.connect.connection import ConnectionFactory
from penstock.ledger.schema import OLDEST, look_for_ledger
from penstock_lab.bench.self_test.report import describe_server, hide_names
from penstock_lab.bench.self_test.run import SCHEMA, STEPS, SelfTest, SelfTestFindings, SkipStep

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from penstock.embedded.server import EmbeddedServer
    from support.s3_lab import S3Lab
    from support.servers import PgServer

# Names that no word of a message or of a setting contains.
ROLE, PASSWORD, DATABASE = "annika_kunde", "Schl0ssberg-geheim", "Geheimbank_7"


# Messages of PostgreSQL, penstock and libpq with a name in each way that they have names.
_MESSAGES = (
    'relation "{}" does not exist',
    "permission denied for schema {}",
    "must be owner of table {}",
    'role »{}« existiert nicht',
    "le rôle « {} » n'existe pas",
    'connection to server at "{}" (10.1.2.3), port 5432 failed: FATAL: no pg_hba.conf entry for user "{}"',
    "could not open file '{}'",
    'unterminated quote "{}',
    "{}.example.com refused the connection",
    "s3://{}/prefix was not found",
    "could not translate host name {}",
)  # fmt: skip


@pytest.mark.part("rest")
@given(st.sampled_from(_MESSAGES), st.from_regex(r"[A-Za-z][A-Za-z0-9_ -]{0,20}[A-Za-z]", fullmatch=True))
def test_no_name_is_left_in_a_message(message: str, name: str) -> None:
    """Of no part of it, whether the message quotes it or not; what is left are the words of the message."""
    told = hide_names(message.format(name, name), [name, "an-other.host"])
    assert told is not None
    assert {*told.replace(".", " ").replace(":", " ").split()} <= {*message.replace(":", " ").split()} - {name}


def test_message_of_a_users_own_code_is_not_kept() -> None:
    """RAISE in a trigger may say anything."""
    assert hide_names("customer Ann Smith is blocked", [], sqlstate="P0001") is None


def test_of_a_server_only_known_settings_and_rights_are_kept() -> None:
    """Not those whose values users choose."""
    settings = [{"name": name, "value": "7", "unit": "kB"} for name in ("work_mem", "cluster_name", "data_directory")]
    facts: dict[str, Any] = {
        "server": {"version_num": 180004, "database": DATABASE, "address": "10.0.0.1"},
        "flavour": {"kind": "rds", "name": "Amazon RDS", "told_by": "role rdsadmin"},
        "pooler": None,
        "encryption": {"is_encrypted": True, "sslmode": "require"},
        "rights": {"is_superuser": False, "session_user": ROLE, "creation_schema": "own"},
        "settings": settings,
    }
    described = describe_server({"facts": facts})
    assert (described["rights"], described["settings"]) == ({"is_superuser": False}, {"work_mem": "7kB"})
    assert not {ROLE, DATABASE, "10.0.0.1", "own"} & {str(value) for value in described.values()}


def start(folder: Path, *options: str, environment: Mapping[str, str] | None = None) -> subprocess.Popen[str]:
    """Start the self-test, which writes its report into a folder."""
    argv = [sys.executable, "-m", "penstock", "bench", "self-test", "-o", str(folder / "report.json"), *options]
    return subprocess.Popen(argv, env={**os.environ, **(environment or {})}, stderr=subprocess.PIPE, text=True)


def run(folder: Path, *options: str, environment: Mapping[str, str] | None = None) -> tuple[int, str, dict[str, str]]:
    """Run the self-test; return its exit code, the report's text, and the state of each step."""
    with start(folder, *options, environment=environment) as process:
        _, told = process.communicate()
    text = (folder / "report.json").read_text()
    print(told, text)
    return process.returncode, text, {step["name"]: step["state"] for step in json.loads(text)["steps"]}


def look(conninfo: str) -> list[Any]:
    """Return what a self-test might leave: schemas here and in database postgres, and settings."""
    found: list[Any] = []
    for dbname in (conninfo_to_dict(conninfo)["dbname"], "postgres"):
        with psycopg.connect(conninfo, dbname=dbname) as connection:
            found += connection.execute("SELECT nspname FROM pg_namespace ORDER BY 1").fetchall()
            query = (
                "SELECT name, setting, source FROM pg_settings WHERE name LIKE '%wal_size' OR name LIKE 'checkpoint%'"
            )
            found += connection.execute(f"{query} ORDER BY 1").fetchall()
    return found


def await_schema(conninfo: str, table: str) -> None:
    """Wait until a table of the test has rows."""
    deadline_s = time.monotonic() + 120
    with psycopg.connect(conninfo, autocommit=True) as connection:
        while True:
            (exists,) = connection.execute("SELECT to_regclass(%s) IS NOT NULL", [f"{SCHEMA}.{table}"]).fetchone() or ()
            if exists and connection.execute(f"SELECT EXISTS (SELECT FROM {SCHEMA}.{table})").fetchone() == (True,):
                return
            assert time.monotonic() < deadline_s
            time.sleep(0.02)


def all_but(**others: str) -> dict[str, str]:
    """Return the state of each step of a test without S3: ok, but for those whose name begins with a given word."""
    found = {name: next((state for word, state in others.items() if name.startswith(word)), "ok") for name in STEPS}
    return found | {"import from S3": "skipped"}


@pytest.mark.part("rest")
def test_interrupted_test_leaves_nothing_but_its_report(database18: str, tmp_path: Path) -> None:
    """By Ctrl-C, whichever command runs."""
    before = look(database18)
    with start(tmp_path, "--to", database18) as process:
        await_schema(database18, "append_t")
        process.send_signal(signal.SIGINT)
        assert process.wait() == 130
    assert look(database18) == before
    assert json.loads((tmp_path / "report.json").read_text())["state"] == "interrupted"


@pytest.mark.part("rest")
@pytest.mark.versions
def test_superuser_passes_every_step_after_a_killed_run(pg: PgServer, database: str, tmp_path: Path) -> None:
    """What the killed run has left, in both databases, is removed by the next one; and so is what that one makes."""
    before = look(database)
    with start(tmp_path, "--to", database) as process:
        await_schema(database, "append_t")
        process.kill()
    with psycopg.connect(pg.conninfo, dbname="postgres", autocommit=True) as connection:
        if ("penstock",) not in before:
            connection.execute("CREATE SCHEMA penstock")
            connection.execute("COMMENT ON SCHEMA penstock IS 'made by penstock bench self-test, which drops it'")
    code, text, states = run(tmp_path, "--to", database)
    assert (code, states) == (0, all_but())
    found = json.loads(text)
    assert (found["format"], found["state"], found["options"]) == (1, "ok", ["to"])
    assert found["server"]["rights"]["is_superuser"] is True
    assert look(database) == before


@pytest.mark.part("rest")
def test_older_ledger_of_leases_is_not_upgraded(new_server: Callable[..., EmbeddedServer], tmp_path: Path) -> None:
    """The processes of the older penstock that use it would end."""
    conninfo = new_server().ensure_running()
    connect = ConnectionFactory(conninfo)
    with psycopg.connect(conninfo, autocommit=True) as admin:
        admin.execute((Path(__file__).parents[2] / "ledgers" / f"{OLDEST}-server.sql").read_bytes())
    with connect.connect() as control:
        reach, found = ("--to", conninfo), SelfTestFindings()
        test = SelfTest(connect=connect, control=control, reach=reach, folder=tmp_path, s3=None, found=found)
        with pytest.raises(SkipStep, match="would upgrade the ledger"):
            STEPS["settings changed and restored"](test)
        assert look_for_ledger(control, "penstock")() == OLDEST


@pytest.fixture
def owned(pg: PgServer) -> Iterator[str]:
    """Provide the conninfo of a role that owns a database, over TCP and with a password, and nothing else."""
    role, name = sql.Identifier(ROLE), sql.Identifier(DATABASE)
    with psycopg.connect(pg.conninfo, autocommit=True) as admin:
        admin.execute(sql.SQL("CREATE ROLE {} LOGIN PASSWORD {}").format(role, PASSWORD))
        admin.execute(sql.SQL("CREATE DATABASE {} OWNER {}").format(name, role))
        yield make_conninfo(pg.over_tcp(pg.conninfo), dbname=DATABASE, user=ROLE, password=PASSWORD)
        admin.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(name))
        admin.execute(sql.SQL("DROP ROLE {}").format(role))


@pytest.mark.part("rest")
@pytest.mark.versions
def test_owner_of_a_database_passes_and_is_not_named(owned: str, tmp_path: Path) -> None:
    """Neither is the database, its server, this machine, its user or a value of the files."""
    code, text, states = run(tmp_path, "--to", owned)
    assert (code, states) == (0, all_but(settings="skipped"))
    assert_nobody_is_named(text, owned, tmp_path)


@pytest.mark.part("rest")
@pytest.mark.pg(">= 18")
def test_failed_step_names_nobody_either(pg: PgServer, owned: str, tmp_path: Path) -> None:
    """Its SQLSTATE and the plain words are kept; a message of the user's own code is not."""
    with psycopg.connect(pg.conninfo, dbname=DATABASE, autocommit=True) as admin:
        admin.execute("""
            CREATE FUNCTION refuse() RETURNS event_trigger LANGUAGE plpgsql AS $$
            BEGIN
                IF tg_tag = 'CREATE INDEX' THEN
                    RAISE 'permission denied for schema Lohnbuch' USING ERRCODE = '42501';
                ELSIF current_query() LIKE '%transform_t%' THEN
                    RAISE 'Frau Lohnbuch does not allow that';
                END IF;
            END $$
        """)
        admin.execute("CREATE EVENT TRIGGER refuse ON ddl_command_end EXECUTE FUNCTION refuse()")
        admin.execute("ALTER EVENT TRIGGER refuse DISABLE")
        with start(tmp_path, "--to", owned) as process:
            await_schema(make_conninfo(pg.conninfo, dbname=DATABASE), "append_t")
            admin.execute("ALTER EVENT TRIGGER refuse ENABLE")
            process.communicate()
    text = (tmp_path / "report.json").read_text()
    found = {step["name"]: step for step in json.loads(text)["steps"] if step["state"] == "failed"}
    assert process.returncode == 5
    rebuilt = found["indexes dropped and rebuilt"]
    assert (rebuilt["sqlstate"], rebuilt["message"]) == ("42501", "permission denied for schema ...")
    assert "Lohnbuch" not in text
    assert_nobody_is_named(text, owned, tmp_path)


def assert_nobody_is_named(text: str, conninfo: str, folder: Path) -> None:
    """Check a report against all that it may have come across."""
    given_words = conninfo_to_dict(conninfo)
    named = [ROLE, PASSWORD, DATABASE, platform.node(), getpass.getuser(), str(folder.parent)]
    named += [str(given_words.get(name)) for name in ("host", "hostaddr", "port") if given_words.get(name)]
    named += ["first", "second", "x" * 2_000, SCHEMA]
    assert [name for name in named if re.search(rf"(?<!\w){re.escape(name)}(?!\w)", text, re.IGNORECASE)] == []


@pytest.mark.part("rest")
def test_object_is_imported_from_s3_and_removed(s3_lab: S3Lab, tmp_path: Path) -> None:
    """Where the server has aws_s3; neither the bucket nor the keys are in the report."""
    code, text, states = run(
        tmp_path, "--to", s3_lab.conninfo, "--s3", f"s3://{s3_lab.bucket}/try", environment=s3_lab.environment
    )
    assert (code, states) == (0, all_but() | {"import from S3": "ok"})
    assert "Contents" not in s3_lab.client.list_objects_v2(Bucket=s3_lab.bucket)
    assert s3_lab.bucket not in text
    assert s3_lab.environment["AWS_SECRET_ACCESS_KEY"] not in text
