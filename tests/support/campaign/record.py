"""The campaign's record: one JSON line for each seed, and a summary in words and a table written from it."""

from __future__ import annotations

import datetime as dt
import json
import platform
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from benchmarks.record import read_commit

from penstock.core.host.machine import read_machine
from penstock.embedded.installations import read_version
from support.campaign.columnar import COLUMNAR
from support.servers import installed

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from support.campaign.scenario import Played

_MEANINGS = {
    "kill": "kill -9 of the loader",
    "commit": "kill -9 of the loader while a deferred trigger sleeps in its COMMIT",
    "terminate": "pg_terminate_backend of one session or all",
    "crash": "immediate stop of the server and a new start",
    "promote": "loss of the primary, promotion of the synchronous standby",
    "late": "loss of the primary while what follows the last row waits, promotion of a standby that lacks some",
    "kill of a retry": "kill -9 of a retry of rejected records",
    "end of a retry": "pg_terminate_backend of its session",
    "crash of a retry": "immediate stop of the server while one runs, and a new start",
    "orphan of a retry": "kill -9 of a retry whose backend goes on, and another one beside it",
    "reset": "TCP reset of every connection to the server",
    "stall": "nothing passes between loader and server for a while",
    "s3": "S3 answers 503, resets, or sends half of a body",
    "disk": "the table's disk is full, and has room again",
    "grow": "kill -9 of the loader, and a file that has grown before the next run",
    "beside": "--mode replace of the table by another load",
    "clock": "stop of the server and a new start with a clock that is hours behind",
    "member": "kill -9 of one of several loaders of a load, and a new one",
    "leader": "kill -9 of the one that leads; of theme lists, the next one lists other objects",
    "stop": "SIGSTOP of one until others have its objects, then SIGCONT",
    "leave": "Ctrl-C of one, or twice",
    "all": "kill -9 of all, and two new ones at the same instant",
    "interrupt": "Ctrl-C",
    "interrupt twice": "Ctrl-C twice",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """What a record adds up to."""

    scenarios: int
    points: int
    crashes_with_loss: int
    takeovers: int
    promotions: int
    rows_gone: int
    lost: int
    repeated: int
    false_successes: int

    def __str__(self) -> str:
        return (
            f"{self.points} points in {self.scenarios} loads, {self.crashes_with_loss} with an acknowledged ledger row "
            f"gone, {self.takeovers} takeovers during COMMIT, {self.promotions} promotions, {self.lost} rows lost, "
            f"{self.repeated} repeated, {self.false_successes} false successes"
        )


def describe_played(played: Played) -> dict[str, Any]:
    """Return a scenario's line. A hit is its kind, its second, the rows committed then, ledger rows gone, takeover."""
    scenario = played.scenario
    return {
        "seed": scenario.seed,
        "theme": scenario.theme,
        "major": scenario.major,
        "mode": scenario.mode,
        "form": played.form,
        "bad": scenario.bad,
        "ends_with_loss": scenario.ends_with_loss,
        "hits": [[hit.kind, hit.at_s, hit.rows, hit.gone, hit.is_takeover] for hit in played.hits],
        "rows": played.rows,
        "lost": played.lost,
        "repeated": played.repeated,
        "false_successes": played.false_successes,
        "redone": played.redone,
        "loaders": played.loaders,
        "binary": played.binary,
        "ended_early": len(played.ended_early),
        "reasons": list(played.ended_early),
        "seconds": played.seconds,
    }


def read_record(path: Path) -> list[dict[str, Any]]:
    """Return the lines of a record, none if the file does not exist."""
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def append(path: Path, line: dict[str, Any]) -> None:
    """Add a scenario, with the commit it was played at; why loaders ended early names files of this machine."""
    stamped = {name: value for name, value in line.items() if name != "reasons"} | {
        "commit": read_commit(),
        "at": f"{dt.datetime.now(dt.UTC):%Y-%m-%dT%H:%MZ}",
    }
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(stamped) + "\n")


def add_up(lines: Sequence[dict[str, Any]]) -> Totals:
    """Return a record's totals."""
    hits = [hit for line in lines for hit in line["hits"]]
    return Totals(
        scenarios=len(lines),
        points=len(hits),
        crashes_with_loss=sum(gone > 0 for _, _, _, gone, _ in hits),
        takeovers=sum(is_takeover for *_, is_takeover in hits),
        promotions=sum(kind == "promote" for kind, *_ in hits),
        rows_gone=sum(gone for _, _, _, gone, _ in hits),
        lost=sum(line["lost"] for line in lines),
        repeated=sum(line["repeated"] for line in lines),
        false_successes=sum(line.get("false_successes", 0) for line in lines),
    )


def write_summary(path: Path, lines: Sequence[dict[str, Any]], *, record: Path) -> None:
    """Write what a record says as Markdown."""
    totals = add_up(lines)
    kinds = Counter(hit[0] for line in lines for hit in line["hits"])
    gone = Counter(hit[0] for line in lines for hit in line["hits"] if hit[3])
    takeovers = Counter(hit[0] for line in lines for hit in line["hits"] if hit[4])
    majors = Counter(line["major"] for line in lines)
    versions = ", ".join(
        f"{read_version(found)} ({majors[major]} loads)" for major, found in installed().items() if majors[major]
    )
    machine = read_machine()
    mixed = sum(len({hit[0] for hit in line["hits"]}) > 1 for line in lines)
    rows = sum(line["rows"] for line in lines)
    themes, forms = Counter(line["theme"] for line in lines), Counter(line.get("form") for line in lines)
    commits = ", ".join(sorted({line["commit"] for line in lines}))
    text = f"""# Seeded fault campaign

Written by `make faults` from [{record.name}]({record.name}), which has a line for each seed.

{totals.points:,} counted points in {totals.scenarios:,} loads. A point counts only if the ledger showed the load
incomplete before and after the fault, with its loader at work. After its last fault each load was resumed to its end;
then the table's rows were compared with the files' as multisets, and the ledger's ranges had to be disjoint, to cover
every object, and to have the checksums of its bytes.

**{totals.lost} rows lost, {totals.repeated} rows repeated, {totals.false_successes} false
successes**, of {rows:,} rows.

| what | counted |
|---|---|
| points with an acknowledged ledger row gone after it | {totals.crashes_with_loss} |
| ledger rows gone in these, each with its batch | {totals.rows_gone} |
| takeovers while a killed loader's backend was in its COMMIT | {totals.takeovers} |
| promotions of a synchronous standby | {totals.promotions} |
| loads hit by more than one kind of fault | {mixed} |
| loads with --mode other than append | {sum(line.get("mode", "append") != "append" for line in lines)} |
| loads after whose success the server was lost at once | {sum(line.get("ends_with_loss", False) for line in lines)} |
| loads by several processes with --join | {themes["hosts"]} |
| loads by --via server | {themes["import"]} |
| loads by --mode sync | {sum(line.get("mode") == "sync" for line in lines)} |
| loads whose rejected records were retried | {themes["retry"]} |
| loads of JSON Lines | {forms["jsonl"]} |
| loads of Parquet or Arrow files | {sum(forms[form] for form in COLUMNAR)} |
| loads with rows in the binary format, all or some | {sum(line.get("binary", 0) > 0 for line in lines)} |
| loads with rejected records | {sum(line.get("bad", 0) > 0 for line in lines)} |
| loader processes started | {sum(line["loaders"] for line in lines)} |

| fault | points | with acknowledged rows gone | takeovers during COMMIT |
|---|---|---|---|
"""
    for kind, meaning in _MEANINGS.items():
        text += f"| {meaning} | {kinds[kind]} | {gone[kind]} | {takeovers[kind]} |\n"
    text += f"""
{machine.cpu_model}, {machine.cpu_count} cores, {machine.kernel}; PostgreSQL {versions}; Python
{platform.python_version()}. Servers with wal_writer_delay = 10s and wal_writer_flush_after = 1GB.
{min(line["at"] for line in lines)} to {max(line["at"] for line in lines)}; commits {commits}.
"""
    path.write_text(text, encoding="utf-8")
