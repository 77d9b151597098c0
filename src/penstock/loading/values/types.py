"""Values for finding the types of columns: the bits of the Rust core's pass, and what is decided from them."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

from penstock import _native
from penstock.core.errors import FileLocation
from penstock.core.slotted import slotted
from penstock.core.values.names import quote_name

# The types in the order in which they are preferred. Type n is bit n of a set of types (rust/src/types.rs).
TYPES: Final = (
    "boolean",
    "integer",
    "bigint",
    "numeric",
    "double precision",
    "date",
    "timestamp",
    "timestamptz",
    "uuid",
    "jsonb",
)
ALL_TYPES: Final = (1 << len(TYPES)) - 1
# If this bit is set, dates such as 01/02/2026 count as kept, because the user has chosen DateStyle for the load.
KNOWN_ORDER: Final = 1 << 10
# If this bit is set, a value that all columns of numbers refuse, or all of days and times, changes none, because
# its record is rejected.
REJECTS: Final = 1 << 29
# The order in which the server reads the numbers of a day, as two bits. Without them, a day in any order counts.
DAY_ORDERS: Final = {"MDY": 1 << 30, "DMY": 2 << 30, "YMD": 3 << 30}
# The bits that are no types and no notations.
FLAGS: Final = KNOWN_ORDER | REJECTS | 0b11 << 30
# pg_type.oid of the types above, of text, and of other types that a column of numbers may have (pg_type.dat).
TYPE_OIDS: Final = {
    "boolean": 16,
    "smallint": 21,
    "integer": 23,
    "bigint": 20,
    "numeric": 1700,
    "double precision": 701,
    "date": 1082,
    "timestamp": 1114,
    "timestamptz": 1184,
    "uuid": 2950,
    "jsonb": 3802,
    "text": 25,
}
# pg_type.oid of the types that columns of columnar files are created with, and of their arrays (pg_type.dat).
_COLUMNAR_OIDS: Final = {
    "boolean": (16, 1000),
    "bytea": (17, 1001),
    "bigint": (20, 1016),
    "smallint": (21, 1005),
    "integer": (23, 1007),
    "text": (25, 1009),
    "real": (700, 1021),
    "double precision": (701, 1022),
    "date": (1082, 1182),
    "time without time zone": (1083, 1183),
    "timestamp without time zone": (1114, 1115),
    "timestamp with time zone": (1184, 1185),
    "numeric": (1700, 1231),
    "uuid": (2950, 2951),
    "jsonb": (3802, 3807),
}
_PRECISION: Final = re.compile(r"\((\d+),(\d+)\)")
# Sequences of types in which each type takes all values of the types before it without loss.
_WIDER: Final = (
    ("smallint", "integer", "bigint", "numeric", "text"),
    ("date", "timestamp", "timestamptz", "text"),
)
# For each type of a column, the bit of the values that the column keeps. A value is kept if the text of the stored
# value says the same as the text in the file.
KEPT: Final = {
    "smallint": 1 << 11,
    "integer": 1 << 12,
    "bigint": 1 << 13,
    "numeric": 1 << 14,
    "date": 1 << 15,
    "timestamp": 1 << 16,
    "timestamptz": 1 << 17,
}
# The notations that values are examined for (see ColumnMap.notations), and their bits.
NOTATIONS: Final = {
    name: 1 << number
    for number, name in enumerate(
        ("dmy", "mdy", "ymd", "1234,5", "1.234,5", "1 234,5", "1'234,5", "1,234.5", "1 234.5", "1'234.5"), 18
    )
}
ORDERS: Final = ("dmy", "mdy", "ymd")
GROUPED: Final = "1.234,5"
# The bit of numbers, dates and timestamps whose notation does not matter.
PLAIN: Final = 1 << 28
NOTATED: Final = PLAIN | sum(NOTATIONS.values())
# The bit that a column of delimited text loses at the first of the NULL_WORDS. The column's other bits are those of the
# values that are left if the word stands for null.
NO_WORD: Final = 1 << 32
# All bits of values. If a column has lost several types, a plan reports them in this order.
BITS: Final = (*(1 << number for number in range(18)), NO_WORD, *NOTATIONS.values())
# The types of numbers, and of dates and timestamps, as bits.
_NUMBERS: Final = sum(1 << TYPES.index(name) for name in ("integer", "bigint", "numeric", "double precision"))
_DATES: Final = sum(1 << TYPES.index(name) for name in ("date", "timestamp", "timestamptz"))
_WHOLE: Final = sum(1 << TYPES.index(name) for name in ("integer", "bigint"))
# The ways in which a column may change a value without an error. Way n is bit n (rust/src/kept.rs).
CHANGES: Final = ("form", "sign", "digits", "time", "zone", "day", "order", "blanks")
ORDER: Final = 1 << CHANGES.index("order")


def wider_types(name: str) -> tuple[str, ...]:
    """Return the types to which a column of type `name` can be widened, the narrowest first.

    >>> wider_types("timestamp"), wider_types("uuid")
    (('timestamptz', 'text'), ('text',))
    """
    chain = next((chain for chain in _WIDER if name in chain[:-1]), None)
    return ("text",) if chain is None else chain[chain.index(name) + 1 :]


def is_grouped(fits: int) -> bool:
    """Return whether all values are numbers for PostgreSQL whose points may also separate thousands, such as 1.234.

    `fits` are the bits of a column, as in `list_notations`.

    >>> is_grouped(PLAIN | NOTATIONS["1.234,5"]), is_grouped(PLAIN | NOTATIONS["1.234,5"] | NOTATIONS["1234,5"])
    (True, False)
    """
    return fits & (PLAIN | NOTATIONS[GROUPED] | NOTATIONS["1234,5"]) == PLAIN | NOTATIONS[GROUPED]


def list_notations(fits: int) -> tuple[str, ...]:
    """Return the notation in which all values of a column are written, or several if the values fit each of them.

    `fits` has a bit for each type and notation that takes all values of the column. The result is empty if PostgreSQL
    reads all values without an option (PLAIN), or if they have no notation in common.

    >>> list_notations(NOTATIONS["dmy"] | NOTATIONS["mdy"]), list_notations(NOTATIONS["1 234.5"] | NOTATIONS["1 234,5"])
    (('dmy', 'mdy'), ('1 234.5',))
    """
    found = () if fits & PLAIN else tuple(name for name, bit in NOTATIONS.items() if fits & bit)
    if "1234,5" in found:
        return ("1234,5", "1,234.5") if "1,234.5" in found else ("1234,5",)
    return tuple(name for name in found if name in ORDERS) or found[-1:]


def may_override(notation: str, common: str) -> bool:
    """Return whether options can give a column a notation although other options give all columns of numbers another.

    `notation` is that of the column, `common` that of all columns of numbers.

    >>> may_override("1'234,5", "1.234,5"), may_override("1,234.5", "1.234,5"), may_override("dmy", "1.234,5")
    (True, False, True)
    """
    separator, mark = notation[1:-5] or common[1:-5], notation[-2]
    return notation in ORDERS or (separator != mark and (mark == "," or common[-2] == "."))


# Words that other programs write for null.
NULL_WORDS: Final = _native.NULL_WORDS
# What MySQL writes for a date that is missing.
_ZERO_DATE: Final = re.compile(r"0000-00-00([ T]00:00(:00(\.0*)?)?)?")


def is_zero_date(value: str) -> bool:
    """Return whether a value is 0000-00-00, with or without a time, which MySQL writes for a missing date.

    >>> is_zero_date("0000-00-00 00:00:00"), is_zero_date("0000-01-01")
    (True, False)
    """
    return _ZERO_DATE.fullmatch(value) is not None


@slotted
class DecidingValue:
    """A value in a file that decided the type of its column."""

    uri: str
    # The line in the file, None if the value is in the name of a folder.
    line: int | None
    # The first 60 bytes of the value.
    value: str
    # Whether it is in the last line of the file.
    is_last: bool = False

    @property
    def shown(self) -> str:
        r"""Return the value in double quotes, as one line without control characters.

        >>> DecidingValue(uri="a.csv", line=2, value="a\n").shown
        '"a\\n"'
        """
        text = "".join(each if each.isprintable() else ascii(each)[1:-1] for each in self.value)
        return f'"{text}"'

    def __str__(self) -> str:
        return f"{FileLocation(file=self.uri, line=self.line)}: {self.shown}"


# The position of a value in the order of the load: the number of its object in the load, and its line.
Position = tuple[int, int]


@dataclass(slots=True, kw_only=True)
class ColumnFindings:
    """The types and notations that a column may have, according to the values that were seen so far."""

    # The types and notations that take all values, as bits.
    fits: int
    # The first value that is not null.
    first: tuple[Position, DecidingValue] | None = None
    # For each other type, the first value that the type does not take.
    lost: dict[int, tuple[Position, DecidingValue]] = field(default_factory=dict)
    # For each notation that options give without naming the column, the findings about the plain forms of the values
    # that are written in it.
    plain: dict[str, ColumnFindings] = field(default_factory=dict)

    @property
    def word(self) -> tuple[Position, DecidingValue] | None:
        """Return the first value that is a word for null, such as N/A, with its position.

        Return None if there is none, or if the column's other values have no type or notation either.
        """
        return self.lost.get(NO_WORD) if self.fits & ~(NO_WORD | FLAGS) else None

    def add(self, other: ColumnFindings) -> None:
        """Add the findings about other values of the same column."""
        self.fits &= other.fits
        if other.first is not None and (self.first is None or other.first[0] < self.first[0]):
            self.first = other.first
        for bit, seen in other.lost.items():
            if bit not in self.lost or seen[0] < self.lost[bit][0]:
                self.lost[bit] = seen
        for notation, each in other.plain.items():
            if notation in self.plain:
                self.plain[notation].add(each)
            else:
                self.plain[notation] = each

    def read_plain(self) -> tuple[ColumnFindings, Misfit | None]:
        """Return the findings after the notations in `plain` are applied, which options give to all columns.

        A notation is applied if all values are written in it: the column then has the types of the plain values. If
        only some are, or if the column has a type without the notation, also return the first value that is not written
        so.
        """
        fits, lost, misfit = self.fits, dict(self.lost), None
        for notation, plain in self.plain.items():
            kind, bit = _DATES if notation in ORDERS else _NUMBERS, NOTATIONS[notation]
            is_written = bool(self.fits & bit)
            if not is_written and bit in self.lost and (self.fits & kind or plain.has_notated(kind)):
                misfit = Misfit(notation=notation, seen=self.lost[bit][1])
            # Dates in another order may still be told: an option that names the column prevails.
            fits &= ~(kind | (0 if is_written or kind != _DATES or not self.fits & kind else PLAIN))
            fits |= plain.fits & kind if is_written else 0
            for each in BITS:
                if each & kind:
                    lost.pop(each, None)
                    if (seen := plain.lost.get(each) if is_written else self.lost.get(bit)) is not None:
                        lost[each] = seen
        return ColumnFindings(fits=fits, first=self.first, lost=lost), misfit

    def has_notated(self, kind: int) -> bool:
        """Return whether the values have a type of `kind` (bits), and are not all whole numbers, which may be codes."""
        is_coded = self.fits & _WHOLE and (self.first is None or self.first[1].value.strip().isdigit())
        return self.first is not None and bool(self.fits & kind) and not is_coded


@slotted
class Misfit:
    """The value because of which a column is not read in a notation that an option gives for all columns (*).

    `seen` is the first value of the column that is not written in `notation`, which is one of NOTATIONS.
    """

    notation: str
    seen: DecidingValue


@slotted
class ColumnChange:
    """A column that the load adds to a table, or changes to a wider type."""

    column: str
    # pg_attribute.attnum.
    number: int
    type_name: str
    # The present type, None for a column that is added.
    was: str | None = None
    # The value that requires the type, None if the column has no values or is text by default.
    decided_by: DecidingValue | None = None

    @property
    def action(self) -> str:
        """Return the action of ALTER TABLE that makes the change.

        >>> ColumnChange(column="a", number=3, type_name="bigint", was="integer").action
        'ALTER COLUMN "a" TYPE bigint'
        """
        if self.was is None:
            return f"ADD COLUMN {quote_name(self.column)} {self.type_name}"
        return f"ALTER COLUMN {quote_name(self.column)} TYPE {self.type_name}"


@slotted
class TypedColumn:
    """A column with the type that was found for it. `decided_by` is the value that decided, None if all are null."""

    name: str
    type_name: str
    decided_by: DecidingValue | None
    # If the column is text, the notations in which its values may be written (`list_notations`). If it is numeric,
    # GROUPED if its values may be written so (`is_grouped`).
    notations: tuple[str, ...] = ()
    # The word for null without which the column would have another type, or a notation.
    word: DecidingValue | None = None
    # If the column is text, the value because of which it is not read in a notation that is meant for all columns.
    misfit: Misfit | None = None
    # If the column is text, the value in the last line without which the column would have another type.
    total: DecidingValue | None = None

    @property
    def reason(self) -> str:
        """Return why the column has its type: the value that decided it, with its file and line."""
        if self.decided_by is None:
            return "no values"
        is_asked = self.type_name == "text" and self.notations
        return f"{self.decided_by}" + (f": {' or '.join(self.notations)}?" if is_asked else "")


def identify_type(name: str) -> tuple[int, int]:
    """Return atttypid and atttypmod in pg_attribute for a column that is created with the type `name`.

    >>> identify_type("text"), identify_type("numeric(10,2)[]")
    ((25, -1), (1231, 655366))
    """
    found = _PRECISION.search(name)
    # numerictypmodin in utils/adt/numeric.c
    modifier = -1 if found is None else (int(found[1]) << 16 | int(found[2])) + 4
    scalar, array = _COLUMNAR_OIDS[_PRECISION.sub("", name).removesuffix("[]")]
    return (array if name.endswith("[]") else scalar, modifier)
