"""One load, cut at each of its packets in turn: it drops, holds a lease, switches triggers off, and merges.

`python -m support.campaign.packets` cuts at all packets, the tests at some. The load must reconnect and end with exit
status 0, with the rows of the files, and with everything restored. No fault lasts, so no other result is right.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg.conninfo import make_conninfo

from penstock.core.connect.connection import ConnectionFactory
from penstock.core.values.job import LoadJob, LoadRules, TargetJob
from penstock.core.values.names import parse_table_name
from penstock.loading.plan.identity import job_to_json
from penstock.restore.repair import Repairer
from support.campaign.plant import Plant
from support.servers import installed, server_pool

if TYPE_CHECKING:
    from collections.abc import Sequence

    from support.campaign.processes import LoaderProcess

_DATABASE = "packets"
_ROWS = 400

_TABLES = """
    CREATE TABLE referenced (id int PRIMARY KEY);
    INSERT INTO referenced SELECT n FROM generate_series(0, 9) AS n;
    CREATE TABLE plain (
        id int PRIMARY KEY, referenced int REFERENCES referenced, note text, number bigserial UNIQUE,
        fired bool DEFAULT false
    );
    CREATE INDEX plain_note ON plain (note);
    CREATE TABLE merged (id int PRIMARY KEY, referenced int, note text);
    INSERT INTO merged SELECT n, 0, 'before' FROM generate_series(-100, 99) AS n;
    CREATE FUNCTION fire() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN NEW.fired := true; RETURN NEW; END';
    CREATE TRIGGER fire BEFORE INSERT ON plain FOR EACH ROW EXECUTE FUNCTION fire();
"""

# What a load leaves if it ends normally: its rows, and nothing else.
_LOOKS = {
    "plain": "SELECT count(*), count(DISTINCT id), sum(id), bool_or(fired) FROM plain",
    "merged": "SELECT count(*), count(DISTINCT id), sum(id), count(*) FILTER (WHERE note = 'before') FROM merged",
    "indexes": "SELECT pg_get_indexdef(indexrelid), indisvalid FROM pg_index"
    " WHERE indrelid IN ('plain'::regclass, 'merged'::regclass) ORDER BY 1",
    "constraints": "SELECT conname, pg_get_constraintdef(oid), convalidated FROM pg_constraint"
    " WHERE conrelid IN ('plain'::regclass, 'merged'::regclass) ORDER BY 1",
    "triggers": "SELECT tgenabled FROM pg_trigger WHERE tgname = 'fire'",
    "options": "SELECT reloptions FROM pg_class WHERE oid = 'plain'::regclass",
    "sequence": "SELECT last_value >= (SELECT max(number) FROM plain) FROM plain_number_seq",
    "loads": "SELECT state FROM penstock.loads",
    "left": "SELECT (SELECT count(*) FROM penstock.changes), (SELECT count(*) FROM penstock.holds),"
    " (SELECT count(*) FROM pg_class WHERE relnamespace = 'penstock'::regnamespace AND relname ~ '^staging_')",
    "settings": "SELECT name, setting FROM pg_file_settings WHERE sourcefile ~ 'auto.conf$' ORDER BY 1",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """How one cut went: how often the load waited, and what was wrong in the end; `packets` were carried."""

    packet: int
    packets: int
    seconds: float
    waits: int
    is_repaired: bool
    faults: tuple[str, ...]


class CutLoad:
    """A server, a relay to it, and a load that is done over and over from the beginning."""

    def __init__(self, plant: Plant, major: int, folder: Path) -> None:
        self._plant = plant
        self._place = plant.single(major)
        self._relay = plant.relay_to(self._place)
        self._folder = folder
        self._direct = make_conninfo(self._place.conninfo, dbname=_DATABASE)
        self._wanted: dict[str, list[Any]] = {}
        paths = [folder / "plain.csv", folder / "merged.csv"]
        for path in paths:
            lines = [f"{n},{n % 10},row {n}\n" for n in range(_ROWS)]
            path.write_text("id,referenced,note\n" + "".join(lines))
        job = LoadJob(
            targets=(
                TargetJob(sources=(str(paths[0]),), into=parse_table_name("plain")),
                TargetJob(sources=(str(paths[1]),), into=parse_table_name("merged"), mode="upsert", key=("id",)),
            ),
            sessions=2,
            rules=LoadRules(retry_for=60.0, indexes="rebuild", triggers="disable", autovacuum="pause"),
        )
        self._job = job_to_json(job)

    def learn(self) -> int:
        """Do the load uncut; return how many packets that takes, and keep how all is then for what must be."""
        packets = self._play(None)
        assert self._loader.exit_code == 0, self._loader.read_log()
        self._wanted = self._look()
        return packets

    def cut(self, packet: int) -> Cut:
        """Do the load with one packet lost; a run that gave up is repaired, and done once more."""
        began_s = time.monotonic()
        packets = self._play(packet)
        faults, log = [], self._loader.read_log()
        if self._loader.exit_code != 0:
            faults.append(f"ended with {self._loader.exit_code}: {log[-1500:]}")
            with Repairer(ConnectionFactory(self._direct)) as repairer:
                repairer.run()
            self._start()
            faults += [] if self._loader.exit_code == 0 else [f"and again: {self._loader.read_log()[-1500:]}"]
        is_repaired = bool(faults) and len(faults) == 1
        found = self._look()
        faults += [f"{what}: {found[what]}" for what, wanted in self._wanted.items() if found[what] != wanted]
        return Cut(
            packet=packet,
            packets=packets,
            seconds=time.monotonic() - began_s,
            waits=log.count("retrying in"),
            is_repaired=is_repaired,
            faults=tuple(faults),
        )

    def _play(self, packet: int | None) -> int:
        with psycopg.connect(make_conninfo(self._direct, dbname="postgres"), autocommit=True) as connection:
            connection.execute(f"DROP DATABASE IF EXISTS {_DATABASE} WITH (FORCE)".encode())
            connection.execute(f"CREATE DATABASE {_DATABASE}".encode())
        with psycopg.connect(self._direct, autocommit=True) as connection:
            connection.execute(_TABLES)
        self._relay.cut_at(packet)
        self._start()
        return self._relay.cut_at(None)

    def _start(self) -> None:
        log = self._folder / "load.log"
        log.unlink(missing_ok=True)
        self._loader: LoaderProcess = self._plant.zygote.start(
            {
                "name": "packets ",
                "log": str(log),
                "conninfo": f"host=127.0.0.1 port={self._relay.port} user=postgres dbname={_DATABASE} sslmode=disable",
                "job": self._job,
                "settings": "bulk-load",
                "batch_bytes": 2000,
                "piece_bytes": 1000,
                "piece_s": 0,
                "environment": {},
            }
        )
        if not self._loader.wait(120):
            self._loader.kill()

    def _look(self) -> dict[str, list[Any]]:
        with psycopg.connect(self._direct, autocommit=True) as connection:
            found = {what: connection.execute(query.encode()).fetchall() for what, query in _LOOKS.items()}
        with psycopg.connect(make_conninfo(self._direct, dbname="postgres"), autocommit=True) as connection:
            return found | {"holds": connection.execute("SELECT count(*) FROM penstock.holds").fetchall()}


def describe(cuts: Sequence[Cut]) -> str:
    """Return what cuts came to, in a few lines."""
    faulty = [f"packet {cut.packet}: {'; '.join(cut.faults)}" for cut in cuts if cut.faults]
    summary = (
        f"{len(cuts)} packets cut: {len(cuts) - len(faulty)} loads ended with 0 and right,"
        f" {sum(cut.is_repaired for cut in cuts)} were repaired and run again;"
        f" {sum(cut.waits > 0 for cut in cuts)} said that they wait; {sum(cut.seconds for cut in cuts):.0f} s"
    )
    return "\n".join([summary, *faulty])


def main() -> int:
    """Cut at every packet, or a sample; return the process's exit status."""
    parser = argparse.ArgumentParser(prog="python -m support.campaign.packets", description=__doc__)
    parser.add_argument("--major", type=int, default=max(installed()), help="PostgreSQL's version")
    parser.add_argument("--sample", type=int, help="cut at so many packets alone, chosen by chance")
    parser.add_argument("--first", type=int, default=1, help="the first packet")
    parser.add_argument("--step", type=int, default=1, help="from one packet to the next: several processes take turns")
    options = parser.parse_args()
    cuts = []
    with server_pool() as pool, tempfile.TemporaryDirectory(prefix="penstock-packets-") as folder:
        plant = Plant(pool)
        try:
            load = CutLoad(plant, options.major, Path(folder))
            packets = range(options.first, load.learn() + 1, options.step)
            chosen = sorted(random.sample(packets, options.sample)) if options.sample else packets
            for packet in chosen:
                cuts.append(load.cut(packet))
                if cuts[-1].faults:
                    print(f"packet {packet}:", *cuts[-1].faults, sep="\n", flush=True)
                elif packet % 25 == 0:
                    print(f"packet {packet} of {packets.stop - 1}", flush=True)
        finally:
            plant.close()
    print(describe(cuts))
    return 1 if any(cut.faults for cut in cuts) else 0


if __name__ == "__main__":
    sys.exit(main())
