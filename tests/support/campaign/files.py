"""What a load loads: rows from the seed, as text of any form, compressed or not, or as columns; one object or many."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from support.campaign.columnar import COLUMNAR, write_columnar

if TYPE_CHECKING:
    import random
    from pathlib import Path

# id, amount, note; the text of each as PostgreSQL shows it, None for null.
Row = tuple[str, str | None, str | None]

COLUMNS = "id integer, amount numeric(12, 2), note text"

_WORDS = ("plain", "with, comma", 'say "hello"', "back\\slash", "été", "two\nlines", "crlf\r\ninside", "", "tab\tin it")
_TSV_WORDS = ("plain", "with, comma", 'say "hello"', "back\\slash", "été", "", "日本語")


@dataclass(frozen=True, slots=True, kw_only=True)
class FileSet:
    """The objects of one load: `bodies` as they are stored, `texts` decompressed, `records` their rows in order.

    The text of a columnar object is that of its rows, without a header. `rows` and `bad`, records that the table
    refuses, are multisets of all of them.
    """

    format: str
    bodies: dict[str, bytes]
    texts: dict[str, bytes]
    records: dict[str, list[Row]]
    rows: Counter[Row]
    bad: Counter[bytes]

    def write(self, folder: Path) -> None:
        """Write the objects into a folder."""
        for name, body in self.bodies.items():
            (folder / name).write_bytes(body)

    @property
    def is_columnar(self) -> bool:
        """Whether the objects have rows instead of text."""
        return self.format in COLUMNAR

    def grow(self, rng: random.Random) -> str:
        """Add records, with ids of their own, to an object, and return its name; each ends with a line end.

        A columnar object is written anew, in other row groups.
        """
        name = rng.choice(list(self.texts))
        first = rng.randrange(10**6, 10**9)
        records = [_draw_row(rng, self.format, identity) for identity in range(first, first + rng.randrange(1, 300))]
        more = "".join(map(_RECORDS[self.format], records)).encode()
        self.texts[name] += more
        self.records[name] += records
        if self.is_columnar:
            self.bodies[name] = write_columnar(self.format, self.records[name], rng)
        else:
            self.bodies[name] += gzip.compress(more, 1, mtime=0) if name.endswith(".gz") else more
        self.rows.update(records)
        return name


def write_rival(path: Path, form: str, rng: random.Random) -> Counter[Row]:
    """Write a file of one row, which no other has, and return that."""
    row = ("-1000", "1.00", "rival")
    path.parent.mkdir(exist_ok=True)
    if form in COLUMNAR:
        path.write_bytes(write_columnar(form, [row], rng))
    else:
        path.write_text(_heading(form) + _RECORDS[form](row))
    return Counter([row])


def draw_files(
    rng: random.Random,
    *,
    rows: int,
    objects: int,
    bad: int,
    is_unique: bool,
    may_be_unended: bool,
    forms: tuple[str, ...],
) -> FileSet:
    """Return a set of objects that have so many rows in all, and `bad` records; a few rows come twice."""
    form = rng.choice(forms)
    is_columnar = form in COLUMNAR
    is_compressed = rng.random() < 0.4 and not is_columnar
    multiset, refused = Counter[Row](), Counter[bytes]()
    bodies: dict[str, bytes] = {}
    texts: dict[str, bytes] = {}
    all_records: dict[str, list[Row]] = {}
    bounds = sorted({0, rows, *(rng.randrange(1, rows) for _ in range(objects - 1))})
    for number, (first, last) in enumerate(pairwise(bounds)):
        records = [_draw_row(rng, form, identity) for identity in range(first, last)]
        if not is_unique:
            records += [rng.choice(records) for _ in range(len(records) // 100)]
        multiset.update(records)
        for _ in range(bad // (len(bounds) - 1)):
            row = _draw_bad(rng, form, rows)
            refused[_RECORDS[form](row).strip(" \n").encode()] += 1
            records.insert(rng.randrange(1, len(records)) if len(records) > 1 else 0, row)
        text = (_heading(form) + "".join(map(_RECORDS[form], records))).encode()
        if rng.random() < 0.3 and may_be_unended and not is_columnar:
            # A last record that nothing ends.
            text = text[:-1]
        name = f"part_{number:03d}.{form}" + (".gz" if is_compressed else "")
        texts[name], all_records[name] = text, records
        if is_columnar:
            bodies[name] = write_columnar(form, records, rng)
        else:
            bodies[name] = gzip.compress(text, 1, mtime=0) if is_compressed else text
    return FileSet(format=form, bodies=bodies, texts=texts, records=all_records, rows=multiset, bad=refused)


def _draw_bad(rng: random.Random, form: str, rows: int) -> Row:
    """Return a record that the table refuses: an amount that is no number, or an id that is too large."""
    if form in COLUMNAR:
        return (str(rng.randrange(10**10, 10**12)), "1.00", f"bad {rng.random()}")
    return (str(rng.randrange(rows)), "much", f"bad {rng.random()}")


def _draw_row(rng: random.Random, form: str, identity: int) -> Row:
    amount = None if rng.random() < 0.05 else f"{rng.randrange(-(10**8), 10**8) / 100:.2f}"
    draw = rng.random()
    if draw < 0.05:
        note = None
    elif draw < 0.15:
        note = rng.choice(_TSV_WORDS if form == "tsv" else _WORDS)
    else:
        note = rng.choice("abcdefghij") * rng.randrange(20, 120)
    return (str(identity), amount, note)


def _heading(form: str) -> str:
    if form in ("jsonl", *COLUMNAR):
        return ""
    return "id,amount,note\n" if form == "csv" else "id\tamount\tnote\n"


def _csv_record(row: Row) -> str:
    fields = []
    for value in row:
        if value is None:
            fields.append("")
        elif value == "" or not set(value).isdisjoint(',"\r\n\\'):
            fields.append('"' + value.replace('"', '""') + '"')
        else:
            fields.append(value)
    return ",".join(fields) + "\n"


def _tsv_record(row: Row) -> str:
    return "\t".join("\\N" if value is None else value for value in row) + "\n"


def _text_record(row: Row) -> str:
    return "\t".join("\\N" if value is None else _escape(value) for value in row) + "\n"


def _escape(value: str) -> str:
    for plain, escaped in (("\\", "\\\\"), ("\n", "\\n"), ("\r", "\\r"), ("\t", "\\t")):
        value = value.replace(plain, escaped)
    return value


def _json_record(row: Row) -> str:
    identity, amount, note = row
    fields: dict[str, object] = {"note": note, "id": int(identity)} if note is not None else {"id": int(identity)}
    written = json.dumps(fields, ensure_ascii=len(identity) % 2 == 0)
    if amount is not None:
        written = f'{written[:-1]}, "amount": {amount if amount != "much" else json.dumps(amount)}}}'
    # Now and then behind a line of blanks.
    return ("  \n" if identity.endswith("77") else "") + written + "\n"


_RECORDS = {
    "csv": _csv_record,
    "tsv": _tsv_record,
    "text": _text_record,
    "jsonl": _json_record,
    **dict.fromkeys(COLUMNAR, _text_record),
}
