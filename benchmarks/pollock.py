"""How well polluted CSV files load, with each file's parameters and by themselves (--create): Pollock's scores.

Pollock (Vitagliano et al., VLDB 2023; github.com/HPI-Information-Systems/Pollock) has 2,290 files, what each holds
when read well, and ten measures a file: success, and precision, recall and F1 of header, records and cells. A file's
score is their sum; the simple score is the mean over the files, the weighted one by how often each pollution was seen.
Its own code does the measuring: `--pollock` is a checkout, or its git directory. That code needs `pip install chardet
joblib multiset numpy price-parser python-dateutil`.

Its survey is 100 real files, loaded by themselves; those that the checkout lacks are left out. Where duckdb is
installed, its sniffer reads the same files and is scored the same way.
"""

from __future__ import annotations

import functools
import importlib
import json
import logging
import re
import subprocess
import sys
import tempfile
from collections import defaultdict
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg import sql

import penstock
from benchmarks.record import save
from benchmarks.server import SETTINGS, bench_server
from penstock.api.options import OPTIONS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from benchmarks.options import Options

# What a git directory is asked for: the results of eighteen other systems take a gigabyte.
_NEEDED = ("polluted_files", "survey_sample", "pollock", "pollock_weights.json", "README.md")
_SURVEY = "survey_sample"
# How DuckDB is asked: as anybody would, for texts as penstock stores them, and as Pollock's own script asks for them.
_DUCKDB: dict[str, dict[str, Any]] = {
    "by itself": {},
    "as text": {"all_varchar": True},
    "as text, Pollock's options": {
        "all_varchar": True,
        "strict_mode": False,
        "ignore_errors": True,
        "null_padding": True,
    },
}
# Scores of its README that stand beside ours.
_PUBLISHED = ("DuckDB 1.2", "SQLite 3.39.0", "Pandas 1.4.3", "DuckDB 1.2 (Auto)", "PostgreSQL 15.0")
_MEASURES = ("header", "records", "cells")
_WAYS = ("parameters", "by itself")
_SHOWN = 15
# Files that score less are named.
_POOR = 9.0

# Why files of the survey lose points, of each kind that was looked at
_SURVEY_REASONS = (
    "Files without a header lose 3 points, as Pollock takes their first record for one (`column-names`); so do R's row",
    "names, of which the header has none. Names of columns are in lower case, which costs short files up to a point.",
    "Refused: a first line that may be a header or a record, lines above a header (the hint is `--skip-lines`), and",
    "headers with more names than any record has fields. `empty-field`: a last field that holds a line end alone",
    "(Infos), or a header that ends with a comma above records of several tables (S30out, W44out).",
)

Scores = dict[str, list[float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """What became of one file: what its table holds as csv, or why there is none; `notes` are the warnings' codes."""

    content: str | None
    error: str | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Bench:
    """A server, and Pollock's checkout."""

    connection: psycopg.Connection[Any]
    conninfo: str
    root: Path

    def load(self, name: str, number: int, *, way: str, folder: str = "polluted_files") -> Loaded:
        """Load a file into a table of its own and return what that holds then."""
        table = f"{'p' if way == 'parameters' else 's'}{number}"
        path = self.root / folder / "csv" / name
        try:
            options = self._prepare(name, table) if way == "parameters" else {"create": True}
            outcome = penstock.load(path, table, to=self.conninfo, on_error="reject", vacuum=False, **options)
            content = self._export(table)
        except (penstock.PenstockError, ValueError, psycopg.Error) as error:
            return Loaded(content=None, error=str(error))
        finally:
            self.connection.execute(sql.SQL("DROP TABLE IF EXISTS {}").format(sql.Identifier(table)))
        return Loaded(content=content, notes=tuple(sorted({notice.code for notice in outcome.warnings})))

    def _prepare(self, name: str, table: str) -> dict[str, Any]:
        """Create the table with the columns of a file's parameters, and return the rest of them as options."""
        text = (self.root / "polluted_files/parameters" / f"{name}_parameters.json").read_text(encoding="utf-8")
        given = json.loads(text)
        columns = [column.strip() for column in given["column_names"]]
        # As Pollock's own load_parameters names them
        columns = columns or [f"col_{index}" for index in range(max(1, given["n_columns"]))]
        definitions = sql.SQL(", ").join(sql.SQL("{} text").format(sql.Identifier(column)) for column in columns)
        self.connection.execute(sql.SQL("CREATE TABLE {} ({})").format(sql.Identifier(table), definitions))
        above = given["preamble_lines"] + given["header_lines"]
        is_tall = above > 1 and "skip_lines" in OPTIONS
        place: dict[str, Any] = {"skip_lines": above, "header": False} if is_tall else {"header": above > 0}
        return place | {
            "columns": tuple(columns),
            "format": "csv",
            "delimiter": given["delimiter"] or ",",
            "quote": given["quotechar"] or '"',
            "escape": given["escapechar"] or given["quotechar"] or '"',
        }

    def _export(self, table: str) -> str:
        """Return a table as csv with a header, empty where the load had nothing to make one of."""
        found = self.connection.execute("SELECT pg_catalog.to_regclass(%s)", [table]).fetchone()
        if found is None or found[0] is None:
            return ""
        query = sql.SQL("COPY {} TO STDOUT (FORMAT csv, HEADER)").format(sql.Identifier(table))
        with self.connection.cursor().copy(query) as copy:
            return b"".join(bytes(part) for part in copy).decode()


def run(options: Options) -> None:
    """Run it and write the results."""
    if options.pollock is None:
        print("left out: --pollock names no checkout")
        return
    logging.getLogger("penstock").setLevel(logging.ERROR)
    with tempfile.TemporaryDirectory(prefix="pollock-") as folder:
        root = _check_out(options.pollock, Path(folder))
        measure = _find_measure(root)
        names = sorted(path.name for path in (root / "polluted_files/csv").glob("*.csv"))
        surveyed = sorted(path.name for path in (root / _SURVEY / "csv").iterdir() if _is_cleaned(root, path.name))
        loads = dict(_load_all(options.data, root, names, surveyed))
        scores = {
            way: {name: _score(loads[way][name], root / "polluted_files/clean" / name, measure) for name in names}
            for way in _WAYS
        }
        survey = {name: _score(loads[_SURVEY][name], root / _SURVEY / "clean" / name, measure) for name in surveyed}
        others = dict(_score_duckdb(root, surveyed, measure))
        weights = json.loads((root / "pollock_weights.json").read_text(encoding="utf-8"))
        published = dict(read_published((root / "README.md").read_text(encoding="utf-8")))
    save(
        "pollock",
        # Scores are no times: each file is loaded once.
        options=replace(options, runs=1),
        postgresql={"server_version": _read_version(options), **SETTINGS},
        settings={"files": len(names), "survey_files": len(surveyed), "duckdb": _duckdb_version()},
        results={way: _describe(scores[way], loads[way], weights) for way in _WAYS}
        | {"published": published, "survey": _describe(survey, loads[_SURVEY]) | {"duckdb": others}},
        table=_table(scores, weights, published),
        notes=[line for way in _WAYS for line in _explain(way, scores[way], loads[way])]
        + _explain_survey(survey, loads[_SURVEY], others),
    )


def _read_version(options: Options) -> str:
    with bench_server(options.data, name="pollock") as server, psycopg.connect(server.conninfo()) as connection:
        return connection.info.parameter_status("server_version") or "unknown"


def _check_out(path: Path, folder: Path) -> Path:
    """Return a checkout, taken from a git directory where that is given."""
    if (path / "polluted_files").is_dir():
        return path
    git = ["git", "--git-dir", str(path)]
    listed = subprocess.run([*git, "ls-tree", "-rz", "HEAD", *_NEEDED], capture_output=True, check=True).stdout
    for entry in filter(None, listed.decode().split("\0")):
        facts, name = entry.split("\t", 1)
        found = subprocess.run([*git, "cat-file", "blob", facts.split()[2]], capture_output=True, check=False)
        # A mirror may lack a few.
        if found.returncode == 0:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(found.stdout)
    return folder


def _find_measure(root: Path) -> Callable[[str, str], tuple[float, ...]]:
    """Return Pollock's own function of what should be there and what is: nine measures."""
    sys.path.insert(0, str(root))
    metrics = importlib.import_module("pollock.metrics")
    # The same cells come in nearly every file
    metrics.normalize_cell = functools.cache(metrics.normalize_cell)
    measure: Callable[[str, str], tuple[float, ...]] = metrics.header_record_cell_measures_csv
    return measure


def _is_cleaned(root: Path, name: str) -> bool:
    return (root / _SURVEY / "clean" / name).exists()


def _load_all(
    data: Path, root: Path, names: Iterable[str], surveyed: Iterable[str]
) -> Iterator[tuple[str, dict[str, Loaded]]]:
    """Yield each way, and the survey, with what became of every file."""
    with (
        bench_server(data, name="pollock") as server,
        psycopg.connect(server.conninfo(), autocommit=True) as connection,
    ):
        connection.execute("DROP SCHEMA IF EXISTS penstock CASCADE")
        bench = Bench(connection, server.conninfo(), root)
        for way in _WAYS:
            loads = {}
            for number, name in enumerate(names):
                loads[name] = bench.load(name, number, way=way)
                if number % 200 == 0:
                    print(f"{way}: {number} files", flush=True)
            yield way, loads
        yield _SURVEY, {name: bench.load(name, at, way="by itself", folder=_SURVEY) for at, name in enumerate(surveyed)}


def _duckdb_version() -> str | None:
    try:
        return str(importlib.import_module("duckdb").__version__)
    except ModuleNotFoundError:
        return None


def _score_duckdb(
    root: Path, names: Iterable[str], measure: Callable[[str, str], tuple[float, ...]]
) -> Iterator[tuple[str, float]]:
    """Yield each way to ask DuckDB with its score on the survey; nothing where it is not installed."""
    if _duckdb_version() is None:
        return
    duckdb = importlib.import_module("duckdb")
    for way, asked in _DUCKDB.items():
        scores = {}
        for name in names:
            with tempfile.NamedTemporaryFile("r", suffix=".csv", encoding="utf-8", newline="") as file:
                try:
                    duckdb.connect().read_csv(str(root / _SURVEY / "csv" / name), **asked).write_csv(file.name)
                    loaded = Loaded(content=Path(file.name).read_text(encoding="utf-8"))
                except duckdb.Error as error:
                    loaded = Loaded(content=None, error=str(error))
            scores[name] = _score(loaded, root / _SURVEY / "clean" / name, measure)
        yield way, round(mean_score(scores), 3)


def _score(loaded: Loaded, clean: Path, measure: Callable[[str, str], tuple[float, ...]]) -> list[float]:
    """Return a file's ten measures."""
    if loaded.content is None:
        return [0.0] * 10
    with tempfile.NamedTemporaryFile("w", suffix=".csv", encoding="utf-8", newline="") as file:
        file.write(loaded.content)
        file.flush()
        return [1.0, *(float(value) for value in measure(str(clean), file.name))]


def read_published(readme: str) -> Iterator[tuple[str, tuple[float, float]]]:
    """Yield each system of the README's table with its simple and its weighted score."""
    for name, simple, weighted in re.findall(
        r"^\| (.+?) +\| \*\*([\d.]+)\*\* +\| \*\*([\d.]+)\*\*", readme, re.MULTILINE
    ):
        yield name, (float(simple), float(weighted))


def mean_score(scores: Scores, weights: Mapping[str, float] | None = None) -> float:
    """Return the simple score, or with weights the weighted one; `scores` are the ten measures of each file."""
    shares = {name: 1.0 if weights is None else weights.get(name, -1.0) for name in scores}
    return sum(sum(measures) * shares[name] for name, measures in scores.items()) / sum(shares.values())


def _describe(
    scores: Scores, loads: Mapping[str, Loaded], weights: Mapping[str, float] | None = None
) -> dict[str, Any]:
    weighted = {} if weights is None else {"weighted": round(mean_score(scores, weights), 3)}
    return {
        "simple": round(mean_score(scores), 3),
        **weighted,
        "files": {
            name: {"score": round(sum(measures), 3), "warnings": loads[name].notes, "error": loads[name].error}
            for name, measures in scores.items()
            if sum(measures) < _POOR
        },
    }


def _table(
    scores: Mapping[str, Scores], weights: Mapping[str, float], published: Mapping[str, tuple[float, float]]
) -> list[tuple[str, ...]]:
    rows = [("system", "simple", "weighted", "success", *(f"F1 of {measure}" for measure in _MEASURES))]
    for way, found in scores.items():
        means = [sum(column) / len(found) for column in zip(*found.values(), strict=True)]
        parts = [f"{means[place]:.3f}" for place in (0, 3, 6, 9)]
        rows.append((f"penstock, {way}", f"{mean_score(found):.3f}", f"{mean_score(found, weights):.3f}", *parts))
    for name in _PUBLISHED:
        simple, weighted = published[name]
        rows.append((f"{name}, as published", f"{simple:.3f}", f"{weighted:.3f}", "", "", "", ""))
    return rows


def _explain(way: str, scores: Scores, loads: Mapping[str, Loaded]) -> list[str]:
    """Return the kinds of files that lose most."""
    kinds: dict[str, list[str]] = defaultdict(list)
    for name in scores:
        kinds[re.sub(r"\d+(?=_|\.csv)", "N", name) if name.startswith("row_") else name].append(name)
    losses = {kind: sum(10 - sum(scores[name]) for name in names) for kind, names in kinds.items()}
    lines = [f"What loses most, {way} (points lost of ten a file):", ""]
    for kind in sorted(losses, key=lambda kind: -losses[kind])[:_SHOWN]:
        if losses[kind] < 0.005:
            break
        worst = min(kinds[kind], key=lambda name: sum(scores[name]))
        why = (loads[worst].error or ", ".join(loads[worst].notes) or "nothing said").splitlines()[0]
        count = len(kinds[kind])
        lines.append(f"- {kind} ({count} file{'s' * (count > 1)}): {losses[kind]:.1f}; worst {worst}: {why}")
    return [*lines, ""]


def _explain_survey(scores: Scores, loads: Mapping[str, Loaded], others: Mapping[str, float]) -> list[str]:
    """Return the survey's score beside DuckDB's, and the files that are not loaded or score less than most."""
    beside = "; ".join(f"{way} {score:.2f}" for way, score in others.items())
    lines = [
        f"Survey, {len(scores)} real files, by itself: {mean_score(scores):.2f}; DuckDB: {beside or 'not installed'}."
    ]
    lines += ["", *_SURVEY_REASONS, "", "What of it scores less than 9 of ten, and what was said:", ""]
    for name, measures in sorted(scores.items(), key=lambda item: (sum(item[1]), item[0])):
        if (score := sum(measures)) < _POOR:
            why = (loads[name].error or ", ".join(loads[name].notes) or "nothing").splitlines()[0]
            lines.append(f"- {score:.1f} {name}: {why}")
    return [*lines, ""]
