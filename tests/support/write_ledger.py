"""Writes what one version of penstock leaves in a ledger, with loads in every state, as the dumps of tests/ledgers.

Run it with the environment of that version, in a checkout of it:

    PYTHONPATH=tests .venv/bin/python -P .../tests/support/write_ledger.py FOLDER [TABLE...]

FOLDER/N.sql is the dump of a loaded database, whose ledger has version N, and FOLDER/N-server.sql is that of the
server's ledger in database postgres. Only names that each version has are imported from its tests. With names of
tables, only these are loaded: an old version does not have all options.

A dump has FILES in place of the folder of the loaded files. Who restores it writes them anew, in a folder of its own
(test_ledger_upgrades.py).
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

# Stands in the dumps for the folder of the loaded files.
FILES = "/FOLDER-OF-THE-FILES"

# A row with this value waits in the table's trigger for an advisory lock, so that its load can be killed there.
_STALL = "stall"
_STALL_KEY = 4711
_SETUP = f"""
    CREATE FUNCTION public.stall() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        IF NEW.b = '{_STALL}' THEN
            PERFORM pg_catalog.pg_advisory_xact_lock({_STALL_KEY});
        END IF;
        RETURN NEW;
    END $$;
"""
# The tables, each filled by the load of the same name. The loads of the first two are complete.
TABLES = ("complete", "strict", "unfinished", "indexed", "merged", "joint", "leased")
COMPLETE = TABLES[:2]
# How many rows each table has once its load is complete; one record of `strict` is rejected.
ROWS = 6


def write_files(folder: Path) -> None:
    """Write three files for each table."""
    for table in TABLES:
        for number, path in enumerate(files_of(folder, table)):
            # The largest file is loaded first, and the load stalls in the last one.
            rows = [[str(2 * number + 1), "x" * 20], [str(2 * number + 2), "y" * 20]]
            if number == 2:
                rows = [["5", "x"], ["6", _STALL if table not in COMPLETE else "z"]]
            text = "a,b\n" + "".join(",".join(row) + "\n" for row in rows)
            path.write_text(text + ("none,r\n" if table == "strict" and number == 1 else ""))


def files_of(folder: Path, table: str) -> list[Path]:
    """Return the files of a table, in the order of its load."""
    return [folder / f"{table}{number}.csv" for number in range(3)]


def _run_load(folder: Path, table: str, conninfo: str) -> None:
    """Load a table with the version of penstock that this process has. Each file is committed by itself."""
    from support.loads import IMPATIENT, Loads, target

    if table == "leased":
        program, files = str(Path(sys.executable).with_name("penstock")), map(str, files_of(folder, table))
        options = ["--into", table, "--to", conninfo, "--sessions", "1", "--settings", "bulk-load"]
        os.execv(program, [program, "load", *files, *options])  # noqa: S606
    job = target(files_of(folder, table), into=table)
    rules = {"indexed": {"indexes": "rebuild"}, "strict": {"on_error": "reject"}, "joint": {"join": True}}
    if table == "merged":
        job = replace(job, mode="upsert", key=("a",))
    loads = Loads(conninfo, chunk_bytes=1, least_dropping_bytes=0)
    loads.run(job, sessions=1, batch_bytes=1, rules=replace(IMPATIENT, **rules.get(table, {})))


def _load_command(folder: Path, table: str, conninfo: str) -> list[str]:
    return [sys.executable, "-P", __file__, "--load", str(folder), table, conninfo]


def _kill_load(folder: Path, table: str, conninfo: str) -> None:
    """Begin a load, kill its process when it stalls, and end its sessions."""
    import psycopg

    process = subprocess.Popen(_load_command(folder, table, conninfo))
    with psycopg.connect(conninfo, autocommit=True) as connection:
        connection.execute("SELECT pg_advisory_lock(%s)", [_STALL_KEY])
        while not connection.execute("SELECT FROM pg_stat_activity WHERE wait_event = 'advisory'").fetchall():
            if process.poll() is not None:
                raise SystemExit(f"the load of {table} has ended with {process.returncode}")
            time.sleep(0.05)
        process.send_signal(signal.SIGKILL)
        process.wait()
        others = "FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
        while connection.execute(f"SELECT pg_terminate_backend(pid) {others}").fetchall():
            time.sleep(0.05)


def _write_dumps(folder: Path, tables: Sequence[str]) -> None:
    import psycopg
    from psycopg.conninfo import make_conninfo

    from support.servers import server_pool

    with server_pool() as pool, tempfile.TemporaryDirectory() as files:
        written = Path(files).resolve()
        write_files(written)
        conninfo = pool.server(18).conninfo()
        with psycopg.connect(conninfo, autocommit=True) as connection:
            connection.execute("CREATE DATABASE old TEMPLATE template0")
        loaded, server = (make_conninfo(conninfo, dbname=name) for name in ("old", "postgres"))
        with psycopg.connect(loaded, autocommit=True) as connection:
            connection.execute(_SETUP)
            for table in tables:
                connection.execute(
                    f"CREATE TABLE public.{table} (a int PRIMARY KEY, b text); CREATE INDEX {table}_b ON {table} (b);"
                    f"CREATE TRIGGER stall BEFORE INSERT ON {table} FOR EACH ROW EXECUTE FUNCTION stall()"
                )
        for table in tables:
            if table in COMPLETE:
                subprocess.run(_load_command(written, table, loaded), check=True)
            else:
                _kill_load(written, table, loaded)
        with psycopg.connect(loaded) as connection:
            comment = str(connection.execute("SELECT obj_description('penstock.loads'::regclass)").fetchone())
            for query in ("SELECT tables, state, epoch FROM penstock.loads", "SELECT * FROM penstock.changes"):
                print(*connection.execute(query).fetchall(), sep="\n")
        version = re.findall(r"version (\d+)", comment)[0]
        program = pool.installation(18).program("pg_dump")
        for name, each in (("", loaded), ("-server", server)):
            options = ["--inserts", "--no-owner", "--no-privileges", "--dbname", each]
            text = subprocess.run([program, *options], capture_output=True, text=True, check=True).stdout
            lines = [line for line in text.splitlines() if not line.startswith(("SET ", "--", "\\")) and line]
            if "CREATE SCHEMA penstock;" in lines:
                (folder / f"{version}{name}.sql").write_text("\n".join(lines).replace(str(written), FILES) + "\n")


if __name__ == "__main__":
    if sys.argv[1] == "--load":
        _run_load(Path(sys.argv[2]), sys.argv[3], sys.argv[4])
    else:
        _write_dumps(Path(sys.argv[1]), sys.argv[2:] or TABLES)
