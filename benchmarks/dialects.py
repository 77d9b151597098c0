"""Files of many dialects, loaded without options: stored as they were written, warned of, refused, or wrong silently.

Each content is written in each dialect, and loaded into a table of three texts that exists and with --create. What is
stored is compared with what was written; which of null and the empty string was meant is not. Then the same content
stands once in 2 MB of plain rows, at 10, 50 or 95 % in turn: a warning counts only if plain rows alone do not give it.
"""

from __future__ import annotations

import csv
import io
import json
import logging
import tempfile
from collections import Counter
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg

import penstock
from benchmarks.record import save
from benchmarks.server import SETTINGS, bench_server

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from benchmarks.options import Options

Row = list[str | None]
Lines = list[str]

HEADER: Row = ["id", "name", "note"]

CONTENTS: dict[str, list[Row]] = {
    "plain": [["1", "Ann", "one"], ["2", "Bob", "two"], ["3", "Eve", "three"]],
    "words": [["x", "Ann", "one"], ["y", "Bob", "two"], ["z", "Eve", "three"]],
    "blanks": [["1", "Ann Smith", "at home"], ["2", "Bob", ""], ["3", " Eve ", "x y z"]],
    "commas": [["1", "Smith, Ann", "a,b"], ["2", "Roe, Bob", "c,d"], ["3", "Poe, Eve", "e,f"]],
    "semicolons": [["1", "a;b", "x"], ["2", "c;d", "y"], ["3", "e;f", "z"]],
    "quotes": [["1", 'the "best"', "x"], ["2", '"all"', "y"], ["3", "none", 'six" pipe']],
    "apostrophes": [["1", "O'Hara", "it's"], ["2", "'twas", "y"], ["3", "dogs'", "z"]],
    "lines": [["1", "a\nb", "x"], ["2", "c", "y\nz"], ["3", "e", "f"]],
    "backslashes": [["1", "C:\\new\\table", "x"], ["2", "\\\\host\\share", "y"], ["3", "a\\", "z"]],
    "nulls": [["1", None, "x"], ["2", None, "y"], ["3", "Eve", None]],
    "decimals": [["1", "1,5", "2,5"], ["2", "3,5", "4,5"], ["3", "5,5", "6,5"]],
    "numbers": [["1", "1.5", "-2e3"], ["2", "0.25", "007"], ["3", "12345678901234567890", "1"]],
    "times": [["1", "10:15", "2026-11-23 10:15:00+01"], ["2", "11:30", "23.11.2026"], ["3", "12:45", "11/23/26"]],
    "json": [["1", '{"a": "b"}', "[1, 2]"], ["2", '{"c": null}', "[]"], ["3", "{}", '"d"']],
    "accents": [["1", "Müller", "Straße"], ["2", "Ærø", "café"], ["3", "Ólafur", "naïve"]],
    "pipes": [["1", "a|b", "#1"], ["2", "c|d", "^2"], ["3", "e|f", "a\tb"]],
}

# Rows that every dialect can write and no guess depends on, and where in them the content stands
PLAIN: Row = ["0", "word", "plain" * 38]
_LATE_BYTES = 2_000_000
_PLACES = (0.1, 0.5, 0.95)

_WAYS = ("existing table", "--create")
_ENDS = ("right", "right, warned of", "wrong, warned of", "refused", "wrong silently")


@dataclass(frozen=True, slots=True)
class File:
    """A file as it was written, and its rows; what cannot be written in a dialect is None.

    `place` is where in plain rows the content stands, None where there is no other.
    """

    dialect: str
    content: str
    place: float | None
    rows: list[Row]
    data: bytes | None

    @property
    def where(self) -> str:
        """Return the place in words."""
        return "" if self.place is None else f", at {self.place:.0%}"


def files() -> Iterator[File]:
    """Yield every content in every dialect: by itself, and late in plain rows, after a file of plain rows alone."""
    plain = [PLAIN] * (_LATE_BYTES // len(",".join(str(value) for value in PLAIN)))
    for index, (dialect, write) in enumerate(dialects().items()):
        for content, rows in CONTENTS.items():
            yield _write(write, dialect, content, None, rows * 4)
        yield _write(write, dialect, "", 1.0, plain)
        # Each dialect and each content comes to every place.
        for number, (content, rows) in enumerate(CONTENTS.items(), index):
            place = _PLACES[number % len(_PLACES)]
            before = int(place * len(plain))
            yield _write(write, dialect, content, place, [*plain[:before], *rows, *plain[before:]])


def _write(
    write: Callable[[list[Row]], bytes | None], dialect: str, content: str, place: float | None, rows: list[Row]
) -> File:
    try:
        data = write([[*row] for row in rows])
    except (UnicodeEncodeError, csv.Error):
        data = None
    return File(dialect=dialect, content=content, place=place, rows=rows, data=data)


def dialects() -> dict[str, Callable[[list[Row]], bytes | None]]:
    """Return how each dialect writes rows as a file, None where it cannot."""
    ways: dict[str, Callable[[list[Row]], bytes | None]] = {}
    for delimiter in ",;\t|":
        for header, quoting in product((True, False), (csv.QUOTE_MINIMAL, csv.QUOTE_ALL)):
            name = f"csv {delimiter!r}{'' if header else ' bare'}{' all quoted' if quoting else ''}"
            ways[name] = _csv(delimiter=delimiter, quoting=quoting, header=header)
        ways[f"csv {delimiter!r} apostrophes"] = _csv(delimiter=delimiter, quotechar="'")
        ways[f"csv {delimiter!r} all in apostrophes"] = _csv(delimiter=delimiter, quotechar="'", quoting=csv.QUOTE_ALL)
        ways[f"csv {delimiter!r} backslash"] = _csv(delimiter=delimiter, doublequote=False, escapechar="\\")
        ways[f"csv {delimiter!r} NULL"] = _csv(delimiter=delimiter, null="NULL")
    for delimiter in ",;\t|:^\x01 ":
        ways[f"raw {delimiter!r}"] = _raw(delimiter, header=True)
    for delimiter in "\t|":
        ways[f"raw {delimiter!r} bare"] = _raw(delimiter, header=False)
        ways[f"COPY text {delimiter!r}"] = _copy_text(delimiter, header=False)
    ways["COPY text with header"] = _copy_text("\t", header=True)
    ways["csv \\N"] = _csv(null="\\N")
    ways["csv CR LF"] = _csv(lineterminator="\r\n")
    ways["csv ; CR LF"] = _csv(delimiter=";", lineterminator="\r\n")
    ways["csv CR"] = _csv(lineterminator="\r")
    ways["csv UTF-8 with BOM"] = _csv(encoding="utf-8-sig")
    ways["csv ; Latin-1"] = _csv(delimiter=";", encoding="latin-1")
    ways["Excel's Unicode text"] = _csv(delimiter="\t", lineterminator="\r\n", encoding="utf-16")
    ways["Excel's sep="] = _csv(delimiter=";", lineterminator="\r\n", before="sep=;\r\n")
    ways["csv with row names"] = _csv(quoting=csv.QUOTE_NONNUMERIC, row_names=True)
    ways["csv not numbers quoted"] = _csv(quoting=csv.QUOTE_NONNUMERIC)
    ways["csv blank behind comma"] = _spaced
    ways["csv comma behind the last field"] = _csv(lineterminator=",\n")
    ways["csv all quoted NULL"] = _csv(quoting=csv.QUOTE_ALL, null="NULL")
    ways["csv with a title"] = _csv(before="Report of November\n\n")
    ways["csv with comments"] = _csv(before="# made by hand\n# twice\n")
    ways["MySQL's OUTFILE as csv"] = _csv(header=False, doublequote=False, escapechar="\\", null="\\N")
    return ways


def _csv(
    *,
    header: bool = True,
    null: str = "",
    encoding: str = "utf-8",
    before: str = "",
    row_names: bool = False,
    **form: object,
) -> Callable[[list[Row]], bytes]:
    def write(rows: list[Row]) -> bytes:
        out = io.StringIO()
        out.write(before)
        writer = csv.writer(out, **{"lineterminator": "\n", **form})  # type: ignore[arg-type]
        whole = [HEADER, *rows] if header else rows
        for number, row in enumerate(whole):
            fields = [null if value is None else value for value in row]
            name = [] if not row_names else [""] if number == 0 else [str(number)]
            writer.writerow([*name, *fields])
        return out.getvalue().encode(encoding)

    return write


def _spaced(rows: list[Row]) -> bytes:
    return _csv()(rows).replace(b",", b", ")


def _raw(delimiter: str, *, header: bool) -> Callable[[list[Row]], bytes | None]:
    def write(rows: list[Row]) -> bytes | None:
        if any(mark in value for row in rows for value in row if value for mark in (delimiter, "\n")):
            return None
        whole = [HEADER, *rows] if header else rows
        return "".join(delimiter.join(value or "" for value in row) + "\n" for row in whole).encode()

    return write


def _copy_text(delimiter: str, *, header: bool) -> Callable[[list[Row]], bytes]:
    def field(value: str | None) -> str:
        if value is None:
            return "\\N"
        for plain, escaped in (("\\", "\\\\"), ("\n", "\\n"), ("\t", "\\t")):
            value = value.replace(plain, escaped)
        return value if delimiter == "\t" else value.replace(delimiter, "\\" + delimiter)

    def write(rows: list[Row]) -> bytes:
        whole = [HEADER, *rows] if header else rows
        return "".join(delimiter.join(map(field, row)) + "\n" for row in whole).encode()

    return write


@dataclass(slots=True)
class Bench:
    """A server, a folder, and which warnings each dialect's plain rows give, if they are stored as written."""

    connection: psycopg.Connection
    conninfo: str
    folder: Path
    usual: dict[tuple[str, str], frozenset[str]]

    def load(self, file: File, *, way: str) -> str:
        """Return how a load of a file ended."""
        assert file.data is not None
        path, table, is_new = self.folder / "file.dat", "d", way == "--create"
        path.write_bytes(file.data)
        self.connection.execute("DROP TABLE IF EXISTS d")
        if not is_new:
            self.connection.execute("CREATE TABLE d (id text, name text, note text)")
        try:
            outcome = penstock.load(path, table, to=self.conninfo, create=is_new, again=True, vacuum=False)
        except penstock.PenstockError:
            return "refused"
        codes = frozenset(notice.code for notice in outcome.warnings)
        is_right = self._is_stored(file, is_new=is_new)
        if not file.content and is_right:
            self.usual[file.dialect, way] = codes
        told = codes - self.usual.get((file.dialect, way), frozenset()) if file.place is not None else codes
        if is_right:
            return "right, warned of" if told else "right"
        return "wrong, warned of" if told else "wrong silently"

    def _is_stored(self, file: File, *, is_new: bool) -> bool:
        if self.connection.execute("SELECT pg_catalog.to_regclass('d')").fetchone() == (None,):
            return not file.rows
        rows = self.connection.execute("SELECT * FROM d").fetchall()
        stored = Counter(tuple(None if value in (None, "") else str(value) for value in row) for row in rows)
        if file.dialect == "csv with row names" and is_new:
            stored = Counter(row[1:] for row in stored.elements())
        return stored == Counter(tuple(value or None for value in row) for row in file.rows)


def run(options: Options) -> None:
    """Load all files both ways and write down how they ended."""
    logging.getLogger("penstock").setLevel(logging.CRITICAL)
    options.results.mkdir(parents=True, exist_ok=True)
    ends: dict[str, Counter[str]] = {}
    silent: list[dict[str, str]] = []
    with bench_server(options.data, settings=SETTINGS) as server, tempfile.TemporaryDirectory() as folder:
        conninfo = server.ensure_running()
        with psycopg.connect(conninfo, autocommit=True, prepare_threshold=None) as connection:
            version = connection.info.parameter_status("server_version")
            bench = Bench(connection, conninfo, Path(folder), {})
            for file, way in product(files(), _WAYS):
                if file.data is None:
                    continue
                end = bench.load(file, way=way)
                if file.content:
                    ends.setdefault(f"{way}{file.where}", Counter())[end] += 1
                if end == "wrong silently":
                    silent.append({"way": f"{way}{file.where}", "dialect": file.dialect, "content": file.content})
    save(
        "dialects",
        options=replace(options, runs=1),
        postgresql={"server_version": version},
        settings={"dialects": len(dialects()), "contents": len(CONTENTS), "late_bytes": _LATE_BYTES},
        results={"ends": {way: dict(found) for way, found in ends.items()}, "silent": silent},
        table=[("", *_ENDS), *((way, *(str(found[end]) for end in _ENDS)) for way, found in ends.items())],
        notes=[json.dumps(each) for each in silent],
    )
