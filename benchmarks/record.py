"""Writes a benchmark's results down: what ran where, every run, medians and spread, as JSON and as a table.

A record names the commit and the command that made it, and is written from a clean working tree only.
"""

from __future__ import annotations

import datetime as dt
import json
import platform
import statistics
import subprocess
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock import __version__
from penstock.core.host.machine import read_machine

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from benchmarks.options import Options
    from benchmarks.processes import Cost

_ROOT = Path(__file__).parents[1]

# Records are added while benchmarks run, and no benchmark reads them.
_RECORDS = "benchmarks/results"
RECORDS = _ROOT / _RECORDS


class UncleanTree(Exception):
    """The code that ran is not that of a commit."""


def require_commit(root: Path = _ROOT) -> str:
    """Return the commit of a working tree. Raises UncleanTree if anything but records differs from it."""
    commit = git(root, "rev-parse", "--short=12", "HEAD")
    if not commit:
        raise UncleanTree(f'no commit was found in "{root}"')
    if changed := git(root, "status", "--porcelain", "--", ".", f":(exclude){_RECORDS}"):
        names = ", ".join(line.split(maxsplit=1)[1] for line in changed.splitlines())
        raise UncleanTree(f"the working tree differs from commit {commit}, commit first: {names}")
    return commit


def read_commit() -> str:
    """Return the commit, marked if anything but records differs from it."""
    with suppress(UncleanTree):
        return require_commit()
    return git(_ROOT, "describe", "--always", "--dirty", "--abbrev=12") or "unknown"


def git(root: Path, *arguments: str) -> str:
    """Return what a git command prints, without blanks around it. Empty if it fails."""
    shown = subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True, check=False)
    return shown.stdout.strip() if shown.returncode == 0 else ""


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
    """Write DATE-NAME.json, whose path is returned, and .md; `table` begins with its heading, `notes` follow it.

    Raises UncleanTree if the code has changed since the benchmark began.
    """
    check_unchanged(options)
    now = dt.datetime.now(dt.UTC)
    record = {
        "benchmark": name,
        "command": options.command,
        "finished_at": now.isoformat(timespec="seconds"),
        "machine": {**asdict(read_machine()), "disk": _describe_disk(options.data)},
        "versions": {**_versions(options.commit), "postgresql": postgresql["server_version"]},
        "settings": {"scale": options.scale, "runs": options.runs, **settings, "postgresql": dict(postgresql)},
        "results": results,
    }
    options.results.mkdir(parents=True, exist_ok=True)
    path = options.results / f"{now:%Y-%m-%d}-{name}.json"
    _write(path, record, table=table, notes=notes)
    return path


def read(path: Path) -> dict[str, Any]:
    """Return a record."""
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


def save_again(
    path: Path,
    *,
    options: Options,
    settings: Mapping[str, Any],
    results: Mapping[str, Any],
    table: Sequence[Sequence[str]],
    notes: Sequence[str],
) -> None:
    """Write what is computed from a record's runs again; the record says by which commit and command.

    Raises UncleanTree as `save` does.
    """
    check_unchanged(options)
    record = read(path)
    record["computed_again"] = {"commit": options.commit, "command": options.command}
    record["settings"] |= settings
    _write(path, {**record, "results": results}, table=table, notes=notes)


def check_unchanged(options: Options) -> None:
    """Raise UncleanTree if the working tree is no longer the commit at which the benchmark began."""
    if (commit := require_commit()) != options.commit:
        raise UncleanTree(f"the commit was {options.commit} when the benchmark began, and is {commit}")


def _write(path: Path, record: Mapping[str, Any], *, table: Sequence[Sequence[str]], notes: Sequence[str]) -> None:
    path.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    heading = f"# {record['benchmark']}, {record['finished_at'][:10]}"
    text = "\n".join([heading, "", *_describe(record), "", *markdown(table), "", *notes]) + "\n"
    path.with_suffix(".md").write_text(text, encoding="utf-8")
    print(text)


def _versions(commit: str) -> dict[str, str]:
    return {"penstock": __version__, "commit": commit, "python": platform.python_version()}


def _describe_disk(folder: Path) -> str:
    """Return the file system that holds a folder, as /proc/mounts names it."""
    mounts = [line.split()[:3] for line in Path("/proc/mounts").read_text(encoding="utf-8").splitlines()]
    holding = [mount for mount in mounts if folder.is_relative_to(mount[1])]
    device, _, kind = max(holding, key=lambda mount: len(mount[1]))
    return f"{kind} on {device}"


def _describe(record: Mapping[str, Any]) -> list[str]:
    machine, versions, settings = record["machine"], record["versions"], record["settings"]
    memory = f"{machine['memory_bytes'] / 2**30:.1f} GiB"
    changed = ", ".join(f"{name} {value}" for name, value in settings["postgresql"].items() if name != "server_version")
    lines = [
        f"{machine['cpu_model']}, {machine['cpu_count']} cores for client and server, {memory}, {machine['kernel']}, "
        f"{machine['disk']}; PostgreSQL {versions['postgresql']}{f' ({changed})' if changed else ''}; penstock "
        f"{versions['penstock']} at {versions['commit']}, Python {versions['python']}. "
        + (f"{settings['runs']} runs after a warm-up, interleaved." if settings["runs"] > 1 else "One run.")
    ]
    if "command" in record:
        lines.append(f"Command: `{record['command']}`.")
    if again := record.get("computed_again"):
        lines.append(f"Computed again from its runs at {again['commit']}: `{again['command']}`.")
    return lines


def markdown(table: Sequence[Sequence[str]]) -> list[str]:
    """Return a table, which begins with its heading, as lines of Markdown."""
    heading, *rows = [f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |" for row in table]
    return [heading, "|" + "---|" * len(table[0]), *rows]
