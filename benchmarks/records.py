"""Which records are of the code as it is: `old` lists the others, and `records` makes those that a commit lacks.

A record is old if the code that its figures depend on has changed since its commit. Comments, docstrings and texts in
Markdown do not count.
"""

from __future__ import annotations

import ast
import re
import shlex
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from benchmarks.record import RECORDS, git, read, require_commit
from penstock.core.host.machine import busy_cpu_s, cpu_count
from penstock_lab.topology.lab import list_labs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from benchmarks.options import Options

_ROOT = Path(__file__).parents[1]


class Figures(NamedTuple):
    """On which code a benchmark's figures depend, and how its record is made."""

    # Files and folders, beside the benchmark's module and what that imports of this folder.
    code: tuple[str, ...]
    arguments: str = ""
    # An option without which it cannot run.
    needs: str | None = None


_LOAD = ("rust/src", "src/penstock/loading", "src/penstock/ledger", "src/penstock/core/connect")
_CHANGES = (*_LOAD, "src/penstock/changes", "src/penstock/settings")
_WATCH = ("src/penstock/watch", "src/penstock/core/host")
_LAB = ("src/penstock_lab/topology", "src/penstock_lab/volumes.py")
_COMMITS = (*_LAB, "src/penstock_lab/bench/commits", "src/penstock_lab/bench/sql")
_BULK_LOAD = (*_LAB, *_CHANGES, "src/penstock_lab/bench/bulk_load", "src/penstock_lab/bench/ways.py")
_SPILLS = (*_LAB, "src/penstock_lab/bench/optimized_reads")

# In the order in which they are made: what others wait for first.
FIGURES = {
    "single_file": Figures(_LOAD),
    "indexed_load": Figures(_CHANGES, "--runs 5"),
    "commits": Figures(_COMMITS),
    "commit_latency": Figures(_COMMITS),
    "bulk_load": Figures(_BULK_LOAD),
    "optimized_reads": Figures(_SPILLS),
    "optimized_reads_multi_az": Figures(_SPILLS),
    "foretold_commits": Figures((*_COMMITS, *_WATCH, "src/penstock/commits"), "--runs 4"),
    "memory": Figures(_LOAD, "--runs 3"),
    "unequal_files": Figures(_LOAD, "--runs 5"),
    "latency_tls": Figures(_LOAD, "--runs 6"),
    "ledger_overhead": Figures(_LOAD, "--runs 20", needs="--baseline"),
    "small_objects": Figures(_LOAD, "--runs 3"),
    "bad_rows": Figures(_LOAD, "--runs 3"),
    "default_settings": Figures(_CHANGES, "--runs 3"),
    "rebuild_schedules": Figures(_CHANGES, "--runs 3"),
    "frozen_rows": Figures((*_LAB, *_LOAD), "--runs 3"),
    "partitions": Figures((*_LOAD, *_CHANGES), "--runs 7"),
    "sampler_cost": Figures(_WATCH),
    "recording_cost": Figures((*_WATCH, *_LOAD), "--runs 5"),
    "disk_space": Figures(_LOAD, "--runs 1"),
    "parquet": Figures(_LOAD, "--runs 5"),
    "copy_format": Figures(_LOAD, "--runs 4"),
    "json_lines": Figures(_LOAD, "--scale 1 --runs 4"),
    "sync": Figures(_LOAD, "--scale 0.5 --runs 3"),
    "import_routes": Figures((*_LAB, *_LOAD), "--scale 0.06 --runs 5"),
    "many_hosts": Figures(_LOAD, "--runs 3"),
    "infer": Figures(("rust/src", "src/penstock/loading"), "--runs 5"),
    "new_tables": Figures(_LOAD, "--runs 5"),
    "dialects": Figures(("rust/src", "src/penstock/loading"), "--runs 1"),
    "real_types": Figures(("rust/src", "src/penstock/loading"), "--runs 1", needs="--packages"),
    "pollock": Figures(("rust/src", "src/penstock/loading"), "--runs 1", needs="--pollock"),
    "volumes": Figures(_LAB, "--runs 3"),
    "plantings": Figures((*_WATCH, "src/penstock/diagnose")),
}

_ALL_CODE = ("src", "rust", "benchmarks", ":(exclude)benchmarks/results")

# What is the same for all benchmarks: it writes and reads records.
_COMMON = frozenset(("record", "records", "recorded", "options"))


class Old(NamedTuple):
    """A record that is old: of which commit it is, and a file of its code with the last commit that changed it."""

    record: Path
    commit: str
    path: str
    changed_at: str


def newest_records(folder: Path = RECORDS) -> dict[str, Path]:
    """Return the newest record of each benchmark by its name. One for a version, plantings-18, is plantings'."""
    return {read(path)["benchmark"].partition("-")[0]: path for path in sorted(folder.glob("*.json"))}


def list_old(root: Path = _ROOT, folder: Path = RECORDS) -> Iterator[Old]:
    """Yield the newest records whose code has changed since. Raises ValueError if the history lacks a commit."""
    for name, record in newest_records(folder).items():
        commit = read(record)["versions"]["commit"]
        if (path := find_change(root, commit, code_of(name, root))) is not None:
            yield Old(record, commit, path, git(root, "log", "-1", "--format=%h", f"{commit}..HEAD", "--", path))


def find_change(root: Path, commit: str, paths: Sequence[str]) -> str | None:
    """Return a file below `paths` whose code differs between a commit and HEAD, None if there is none.

    Raises ValueError if the history lacks the commit.
    """
    if not git(root, "cat-file", "-t", commit):
        raise ValueError(f"the history lacks commit {commit}: it needs a whole clone")
    for path in git(root, "diff", "--name-only", commit, "HEAD", "--", *paths).splitlines():
        before, after = (git(root, "show", f"{at}:{path}") for at in (commit, "HEAD"))
        if without_words(path, before) != without_words(path, after):
            return path
    return None


def without_words(path: str, text: str) -> str:
    r"""Return the code of a file without its comments and docstrings, and of a text in Markdown nothing.

    >>> without_words("a.sql", "-- Why\nSELECT 1\\n")
    'SELECT 1'
    """
    kind = path.rpartition(".")[2]
    if kind == "py":
        tree = ast.parse(text)
        for node in ast.walk(tree):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                node.body = node.body[1:] if ast.get_docstring(node) is not None else node.body
        return ast.dump(tree)
    if kind == "md":
        return ""
    mark = {"rs": "//", "sql": "--"}.get(kind, "#")
    return "\n".join(line for line in text.splitlines() if line.strip() and not line.lstrip().startswith(mark))


def code_of(name: str, root: Path = _ROOT) -> list[str]:
    """Return the files and folders on which a benchmark's figures depend."""
    left, found = [name], set[str]()
    while left:
        module = left.pop()
        path = root / "benchmarks" / f"{module}.py"
        if module in found or module in _COMMON or not path.exists():
            continue
        found.add(module)
        left += re.findall(r"^from benchmarks\.(\w+) import", path.read_text(encoding="utf-8"), re.MULTILINE)
    return [*FIGURES[name].code, *(f"benchmarks/{module}.py" for module in sorted(found))]


def show_old(cited: Sequence[str]) -> int:
    """Print the old records, and return how many of them one of the `cited` documents names."""
    texts = {document: (_ROOT / document).read_text(encoding="utf-8") for document in cited or ["README.md"]}
    count = 0
    try:
        for old in list_old():
            by = [document for document, text in texts.items() if f"{old.record.stem}." in text]
            count += bool(by)
            named = f", named by {', '.join(by)}" if by else ""
            print(f"old record: {old.record.stem} of {old.commit}: {old.path} has changed at {old.changed_at}{named}")
    except ValueError as reason:
        print(f"old records are not known: {reason}")
    return count if cited else 0


def make_records(names: Sequence[str], options: Options, *, only_old: bool, run: Callable[[list[str]], int]) -> int:
    """Make the records that this commit lacks, each by `run`, and return how many are missing at the end.

    With `only_old`, make only those that are missing or old. What an ended run has made is not made again. Raises
    UncleanTree.
    """
    commit = require_commit()
    for lab in list_labs(options.data):
        lab.down()
    missing = []
    for name in names or FIGURES:
        record = newest_records(options.results).get(name)
        paths = code_of(name) if only_old else _ALL_CODE
        if record is not None and find_change(_ROOT, read(record)["versions"]["commit"], paths) is None:
            print(f"== {name} has {record.name}", flush=True)
            continue
        needs = FIGURES[name].needs
        if needs is not None and getattr(options, needs.strip("-")) is None:
            missing.append(f"{name} (needs {needs})")
            continue
        if not options.on_busy:
            await_idle()
        began_s = time.monotonic()
        arguments = [name, *shlex.split(FIGURES[name].arguments), *options.given]
        if run([sys.executable, "-m", "benchmarks", *arguments]) != 0:
            missing.append(f"{name} (failed)")
        print(f"== {name}: {(time.monotonic() - began_s) / 60:.1f} minutes", flush=True)
    print(f"records at {commit}: {'all made' if not missing else 'missing ' + ', '.join(missing)}")
    return len(missing)


def run_benchmark(argv: list[str]) -> int:
    """Run a benchmark in a process of its own, and return its exit status."""
    return subprocess.run(argv, cwd=_ROOT, check=False).returncode


# A machine is idle if at most this share of its processors is busy for so long.
_IDLE_SHARE, _IDLE_S, _PATIENCE_S = 0.1, 5.0, 600.0


def await_idle() -> None:
    """Wait until the machine is idle. Exit if it is not within ten minutes."""
    deadline_s = time.monotonic() + _PATIENCE_S
    while True:
        before_s = busy_cpu_s()
        time.sleep(_IDLE_S)
        share = (busy_cpu_s() - before_s) / _IDLE_S / cpu_count()
        if share <= _IDLE_SHARE:
            return
        if time.monotonic() > deadline_s:
            raise SystemExit(f"no records: {share:.0%} of the processors are busy (--on-busy measures all the same)")
