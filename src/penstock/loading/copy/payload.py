r"""Chooses the COPY command for a file's dialect, and turns each block into a payload, as text or binary.

COPY has no option for tsv (no quoting, no escapes). tsv is sent as COPY text with its backslashes doubled; a block in
which every backslash belongs to a `\N` field is sent unchanged. csv and text are sent unchanged, unless fields are
skipped, constants are added, or several null strings must become one. Records of JSON Lines are written again as text.
For a staging table, the object's number and the block's offset are added to every record (core/catalogue/staging.py).
"""

from __future__ import annotations

import codecs
from collections.abc import Sequence
from typing import Final

from penstock import _native
from penstock.core.catalogue.staging import SENT_COLUMNS
from penstock.core.errors import UsageError
from penstock.core.slotted import slotted
from penstock.core.values.dialect import Dialect
from penstock.core.values.table import Column, ColumnMap, TableName
from penstock.ledger.rejects import RecordForm
from penstock.loading.values.objects import Block, CopySpec

# The name of a column's type in the Rust core, and the type's limit: digits after the decimal point, decimals of a
# second, or a length.
KeptType = tuple[str, int]

OTHER: Final[KeptType] = ("other", -1)
# The names by pg_type.oid (pg_type.dat).
_NAMES: Final = {
    20: "integer",
    21: "integer",
    23: "integer",
    700: "float4",
    701: "float8",
    1043: "varchar",
    1082: "date",
    1083: "time",
    1114: "timestamp",
    1184: "timestamptz",
    1266: "timetz",
    1700: "numeric",
}
_NO_SCALE: Final = 2**31 - 1
# VARHDRSZ, which is part of the modifiers of character varying and numeric (varchar.c, numeric.c)
_HEADER: Final = 4


def find_kept_type(column: Column | None) -> KeptType:
    """Return the Rust core's name for a column's type, with the length, scale or precision that the column allows.

    Returns OTHER for a type that stores every value unchanged, and for an unknown column.

    >>> find_kept_type(Column(name="a", type_name="numeric(10,2)", type_oid=1700, type_modifier=(10 << 16 | 2) + 4))
    ('numeric', 2)
    """
    if column is None or column.base.oid not in _NAMES:
        return OTHER
    name, modifier = _NAMES[column.base.oid], column.base.modifier
    if name == "numeric":
        return name, _NO_SCALE if modifier < 0 else _decode_scale(modifier)
    if name == "varchar":
        return (name, modifier - _HEADER) if modifier >= 0 else OTHER
    return name, modifier


def find_kept_types(columns: Sequence[Column | None]) -> tuple[KeptType, ...]:
    """Return what `find_kept_type` returns for each column, or () if that is OTHER for all columns."""
    found = tuple(map(find_kept_type, columns))
    return () if all(each == OTHER for each in found) else found


def _decode_scale(modifier: int) -> int:
    """Return the scale in a numeric's modifier, a signed number of 11 bits (numeric_typmod_scale in numeric.c).

    >>> _decode_scale((10 << 16 | 2) + 4), _decode_scale((5 << 16 | (-3 & 0x7FF)) + 4)
    (2, -3)
    """
    return ((modifier - _HEADER & 0x7FF) ^ 1024) - 1024


_TEXT_NULL = "\\N"


@slotted
class Encoder:
    """Turns blocks of one object into data of the COPY command that `spec` describes."""

    spec: CopySpec
    rewriter: _native.Rewriter | _native.JsonRewriter
    passes_plain: bool
    passes_all: bool
    # The object's number. If it is set, each record is sent with this number and the offset of its block.
    positions: int | None = None
    # The types of the columns that may change values, () if none does.
    kept: Sequence[KeptType] = ()
    # Reads the payload of JSON Lines.
    sent: _native.Rewriter | None = None

    def encode(self, block: Block) -> Sequence[bytes | memoryview]:
        """Return the block as data of the COPY command, in parts to be sent in order.

        Raises penstock._native.RecordError if a record cannot be rewritten. The error's position is relative to the
        block.
        """
        if self.is_untouched(block):
            return [
                buffer if start == 0 and end == len(buffer) else memoryview(buffer)[start:end]
                for buffer, start, end in block.segments
            ]
        if self._only_doubles(block) and not block.is_unended:
            return [
                _native.double_backslashes(
                    block.segments, delimiter=self.spec.delimiter.encode(), count=block.stray_backslashes
                )
            ]
        extra = None if self.positions is None else [str(self.positions).encode(), str(block.start).encode()]
        return [self.rewriter.rewrite(block.segments, block.line_end, extra=extra)]

    def fits_any(self, block: Block) -> bool:
        """Return whether any record of a block has the expected number of fields.

        In JSON Lines: whether any can be read.
        """
        return block.fault is None and self.rewriter.fits_any(block.segments, block.line_end)

    def find_changes(self, block: Block, payload: Sequence[bytes | memoryview] = ()) -> list[_native.Change]:
        """Return the values of a block that a column would store differently (see Change in _native.pyi).

        `payload` is the encoded block. If it is given, JSON is read again only if a value changes.
        """
        forced = [name in self.spec.force_null for name in self.spec.columns[: len(self.kept)]]
        if self.sent is not None and payload:
            runs = [(bytes(part), 0, len(part)) for part in payload]
            if not self.sent.find_changes(runs, "lf", columns=self.kept, forced=forced):
                return []
        return self.rewriter.find_changes(block.segments, block.line_end, columns=self.kept, forced=forced)

    @property
    def is_by_name(self) -> bool:
        """Return whether records name their fields, as in JSON Lines.

        In these, blank lines belong to the next record.
        """
        return isinstance(self.rewriter, _native.JsonRewriter)

    def is_untouched(self, block: Block) -> bool:
        """Return whether `encode` returns the block's own bytes. If so, its last record may lack a line end."""
        return self.passes_all or (self._only_doubles(block) and not block.stray_backslashes)

    def _only_doubles(self, block: Block) -> bool:
        """Return whether a block needs no other change than doubled backslashes.

        A block with CR LF needs another change: rewritten blocks of the same COPY end lines with a line feed, and the
        server accepts only one kind of line end.
        """
        return self.passes_plain and block.line_end == "lf"


# PostgreSQL's encodings that have another name in Python. Python knows the others by PostgreSQL's name.
# Source: postgresql.org/docs/current/multibyte.html, docs.python.org/3/library/codecs.html
_CODECS = {
    "SQL_ASCII": "utf-8",
    "WIN866": "cp866",
    "WIN874": "cp874",
    "KOI8R": "koi8-r",
    "KOI8U": "koi8-u",
    "LATIN5": "iso8859-9",
    "LATIN6": "iso8859-10",
    "LATIN7": "iso8859-13",
    "LATIN8": "iso8859-14",
    "LATIN9": "iso8859-15",
    "LATIN10": "iso8859-16",
    "EUC_CN": "gb2312",
    # For these encodings, Python's codecs decode some codes to other characters than the server does, so only ASCII
    # characters are written.
    "EUC_JIS_2004": "ascii",
    "EUC_JP": "ascii",
}


def python_codec(encoding: str) -> str:
    """Return the name of Python's codec for an encoding of PostgreSQL.

    The result is "ascii" if Python has no such codec (EUC_TW, MULE_INTERNAL), or has one that differs from the
    server's.

    >>> python_codec("WIN1252"), python_codec("LATIN9")
    ('cp1252', 'iso8859-15')
    """
    name = _CODECS.get(encoding.upper(), encoding)
    if name.upper().startswith("WIN") and name[3:].isdigit():
        name = f"cp{name[3:]}"
    if name.upper().startswith("ISO_"):
        name = name.replace("_", "-")
    try:
        return codecs.lookup(name).name
    except LookupError:
        return "ascii"


def make_form_encoder(form: RecordForm, *, positions: int | None = None, checks_width: bool = False) -> Encoder:
    """Return the encoder for records that are read as `form` says. The other arguments are those of `make_encoder`."""
    return make_encoder(
        form.dialect,
        form.column_map,
        table=form.table,
        encoding=form.encoding,
        positions=positions,
        checks_width=checks_width,
    )


def make_encoder(
    dialect: Dialect,
    column_map: ColumnMap,
    *,
    table: TableName,
    encoding: str,
    positions: int | None = None,
    checks_width: bool = False,
) -> Encoder:
    """Return the encoder for the blocks of one object. `encoding` is the encoding of the encoded blocks.

    If `positions`, the object's number in the ledger, is given, it and the offset of the block are added to every
    record as SENT_COLUMNS. With `checks_width`, all records are rewritten, and one with another number of fields than
    expected is refused. Raises UsageError if a value of --null or --set cannot be sent.
    """
    if column_map.names is not None:
        return _make_json_encoder(column_map, column_map.names, table=table, encoding=encoding, positions=positions)
    is_reshaped = column_map.keep is not None or bool(column_map.constants) or column_map.ends_empty
    is_reshaped = is_reshaped or positions is not None or checks_width or bool(column_map.notations)
    is_tsv, codec = dialect.format == "tsv", python_codec(encoding)
    try:
        rewriter = _native.Rewriter(
            format=dialect.format,
            delimiter=dialect.delimiter.encode(),
            quote=None if dialect.quote is None else dialect.quote.encode(),
            escape=None if dialect.escape is None else dialect.escape.encode(),
            nulls=[null.encode(codec) for null in dialect.nulls],
            keep=column_map.keep,
            constants=[None if value is None else value.encode(codec) for value in column_map.constants],
            field_count=column_map.field_count if is_reshaped else None,
            ends_empty=column_map.ends_empty,
        )
        if column_map.notations:
            rewriter = rewriter.with_notations(_name_notations(dialect, column_map, codec=codec))
    except UnicodeEncodeError as exc:
        raise UsageError(
            f"character {exc.object[exc.start]!r} of --null or --set cannot be written in encoding {encoding}",
            hint="Remove it, or convert the file to UTF8 first.",
        ) from exc
    except ValueError as exc:
        raise UsageError(str(exc), hint="Choose another --null or --set value.") from exc
    return Encoder(
        spec=CopySpec(
            schema=table.schema,
            table=table.name,
            columns=column_map.columns if positions is None else (*column_map.columns, *SENT_COLUMNS),
            format="text" if is_tsv else dialect.format,  # type: ignore[arg-type]
            delimiter=dialect.delimiter,
            null=_TEXT_NULL if is_tsv else dialect.nulls[0],
            quote=dialect.quote,
            escape=dialect.escape,
            encoding=encoding,
            force_null=_forced_columns(dialect, column_map),
        ),
        rewriter=rewriter,
        passes_plain=is_tsv and not is_reshaped and dialect.nulls == (_TEXT_NULL,),
        passes_all=not is_tsv and not is_reshaped and len(dialect.nulls) == 1,
        positions=positions,
    )


def _make_json_encoder(
    column_map: ColumnMap,
    names: Sequence[tuple[str, int | None]],
    *,
    table: TableName,
    encoding: str,
    positions: int | None,
) -> Encoder:
    """Return the encoder for an object of JSON Lines, whose encoding is UTF-8."""
    fed = len(column_map.columns) - len(column_map.constants)
    rewriter = _native.JsonRewriter(
        names=[(name.encode(), index) for name, index in names],
        takes_json=[index in column_map.takes_json for index in range(fed)],
        constants=[None if value is None else value.encode() for value in column_map.constants],
        skips_others=column_map.skips_others,
    )
    return Encoder(
        spec=CopySpec(
            schema=table.schema,
            table=table.name,
            columns=column_map.columns if positions is None else (*column_map.columns, *SENT_COLUMNS),
            format="text",
            delimiter="\t",
            null=_TEXT_NULL,
            quote=None,
            escape=None,
            encoding=encoding,
        ),
        rewriter=rewriter,
        passes_plain=False,
        passes_all=False,
        positions=positions,
        sent=_native.Rewriter(format="text", delimiter=b"\t", nulls=[_TEXT_NULL.encode()]),
    )


# If a blank separates thousands, no-break blanks do so too. If an apostrophe does, so does the typographic one that
# programs write in Switzerland.
_LIKE_SEPARATORS: Final = {" ": "\u00a0\u202f", "'": "\u2019"}


def list_separators(notation: str, *, codec: str) -> list[bytes]:
    r"""Return the characters that separate thousands in a notation of numbers, each encoded by `codec`.

    >>> list_separators("1 234,5", codec="cp1252"), list_separators("1234,5", codec="utf-8")
    ([b' ', b'\xa0'], [])
    """
    given = notation[1:-5] if notation.startswith("1") else ""
    found = (character.encode(codec, errors="ignore") for character in given + _LIKE_SEPARATORS.get(given, ""))
    return [separator for separator in found if separator]


def _name_notations(
    dialect: Dialect, column_map: ColumnMap, *, codec: str
) -> list[tuple[str, str, list[bytes], bool] | None]:
    """Return the notations of columns for the Rust core."""
    forced = _forced_columns(dialect, column_map)
    return [
        None if notation is None else (name, notation, list_separators(notation, codec=codec), name in forced)
        for name, notation in zip(column_map.columns, column_map.notations, strict=False)
    ]


def _forced_columns(dialect: Dialect, column_map: ColumnMap) -> tuple[str, ...]:
    """Return the columns from the file in which quoted fields may be null. Constants are never converted to null."""
    fed = column_map.columns[: len(column_map.columns) - len(column_map.constants)]
    return fed if "*" in dialect.force_null else tuple(name for name in fed if name in dialect.force_null)
