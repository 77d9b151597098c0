"""Writes a benchmark's results down: what ran where, every run, medians and spread, as JSON and as a table."""

from __future__ import annotations

import datetime as dt
import json
import platform
import statistics
import subprocess
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock import __version__
from penstock.host import read_machine

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from benchmarks.options import Options
    from benchmarks.processes import Cost

_ROOT = Path(__file__).parents[1]


def summarize(costs: Sequence[Cost]) -> dict[str, Any]:
    """Return a way's runs, and of each measure the median, the lowest and the highest."""
    summary: dict[str, Any] = {"runs": [asdict(cost) for cost in costs]}
    for measure in ("seconds", "cpu_s", "peak_rss_bytes"):
        values = [value for cost in costs if (value := getattr(cost, measure)) is not None]
        if values:
            summary[measure] = spread(values)
    return summary


def spread(values: Sequence[float]) -> dict[str, float]:
    """Return median, lowest and highest."""
    return {"median": statistics.median(values), "lowest": min(values), "highest": max(values)}


def save(
    name: str,
    *,
    options: Options,
    postgresql: Mapping[str, str],
    settings: Mapping[str, Any],
    results: Mapping[str, Any],
    table: Sequence[Sequence[str]],
    notes: Sequence[str],
) -> Path:
    """Write DATE-NAME.json, whose path is returned, and .md; `table` begins with its heading, `notes` follow it."""
    now = dt.datetime.now(dt.UTC)
    record = {
        "benchmark": name,
        "finished_at": now.isoformat(timespec="seconds"),
        "machine": {**asdict(read_machine()), "disk": _describe_disk(options.data)},
        "versions": {**_versions(), "postgresql": postgresql["server_version"]},
        "settings": {"scale": options.scale, "runs": options.runs, **settings, "postgresql": dict(postgresql)},
        "results": results,
    }
    options.results.mkdir(parents=True, exist_ok=True)
    path = options.results / f"{now:%Y-%m-%d}-{name}.json"
    path.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    text = "\n".join([f"# {name}, {now:%Y-%m-%d}", "", _describe(record), "", *_markdown(table), "", *notes]) + "\n"
    path.with_suffix(".md").write_text(text, encoding="utf-8")
    print(text)
    return path


def _versions() -> dict[str, str]:
    return {"penstock": __version__, "commit": read_commit(), "python": platform.python_version()}


def read_commit() -> str:
    """Return the commit, marked where the sources differ from it."""
    shown = subprocess.run(
        ["git", "describe", "--always", "--dirty", "--abbrev=12"],
        cwd=_ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    return shown.stdout.strip() or "unknown"


def _describe_disk(folder: Path) -> str:
    """Return the file system that holds a folder, as /proc/mounts names it."""
    mounts = [line.split()[:3] for line in Path("/proc/mounts").read_text(encoding="utf-8").splitlines()]
    holding = [mount for mount in mounts if folder.is_relative_to(mount[1])]
    device, _, kind = max(holding, key=lambda mount: len(mount[1]))
    return f"{kind} on {device}"


def _describe(record: Mapping[str, Any]) -> str:
    machine, versions, settings = record["machine"], record["versions"], record["settings"]
    memory = f"{machine['memory_bytes'] / 2**30:.1f} GiB"
    changed = ", ".join(f"{name} {value}" for name, value in settings["postgresql"].items() if name != "server_version")
    return (
        f"{machine['cpu_model']}, {machine['cpu_count']} cores for client and server, {memory}, {machine['kernel']}, "
        f"{machine['disk']}; PostgreSQL {versions['postgresql']} ({changed}); penstock {versions['penstock']} at "
        f"{versions['commit']}, Python {versions['python']}. "
        + (f"{settings['runs']} runs after a warm-up, interleaved." if settings["runs"] > 1 else "One run.")
    )


def _markdown(table: Sequence[Sequence[str]]) -> list[str]:
    heading, *rows = [f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |" for row in table]
    return [heading, "|" + "---|" * len(table[0]), *rows]
