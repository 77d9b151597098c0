"""Describes a dialect in one line. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.units import count_nouns

if TYPE_CHECKING:
    from penstock.model.load.plan import TargetPlan
    from penstock.model.source.dialect import Dialect
    from penstock.model.source.source import Compression


def describe_dialect(dialect: Dialect, compression: Compression, *, bom: str | None) -> str:
    r"""Return a dialect in one line. Characters are written as on the command line, such as \t.

    `bom` is the encoding of the file's byte-order mark, None if it has none. It is shown instead of the dialect's
    encoding.

    >>> from penstock.model.source.dialect import Dialect
    >>> tsv = Dialect(format="tsv", delimiter="\t", quote=None, escape=None, nulls=(r"\N",), has_header=True,
    ...               encoding="UTF8")
    >>> print(describe_dialect(tsv, "gzip", bom=None))
    tsv, delimiter '\t', no quoting, null '\N', header, UTF8, gzip
    """
    encoding, packing = bom or dialect.encoding, "not compressed" if compression == "none" else compression
    if dialect.format == "jsonl":
        return f"jsonl, {encoding}, {packing}"
    quoting = "no quoting"
    if dialect.quote is not None:
        quoting = f"quote {spell(dialect.quote)}"
        if dialect.escape not in (None, dialect.quote):
            quoting += f", escape {spell(dialect.escape or '')}"
    return ", ".join(
        (
            dialect.format,
            f"delimiter {spell(dialect.delimiter)}",
            quoting,
            "null " + " or ".join(f"'{null}'" for null in dialect.nulls) if dialect.nulls else "no null",
            "header" if dialect.has_header else "no header",
            encoding,
            packing,
        )
    )


def describe_format(target: TargetPlan) -> str:
    """Return the format of a target's files in one line."""
    if target.columnar is None:
        return describe_dialect(target.dialect, target.sample_compression, bom=target.sample_bom)
    found = target.columnar
    parts = ("row group", "row groups") if found.format == "parquet" else ("record batch", "record batches")
    columns, rows = count_nouns(len(found.fields), "column"), count_nouns(found.rows, "row")
    first = " in the first file" if len(target.objects) > 1 else ""
    return f"{found.format}, {columns}, {rows}, {count_nouns(found.parts, *parts)}{first}"


def spell(character: str) -> str:
    r"""Return a character in quotes, spelled as --delimiter accepts it.

    >>> print(spell("\t"), spell("|"), spell("\x1f"))
    '\t' '|' '\x1f'
    """
    if character.isprintable():
        return f"'{character}'"
    return f"'{character.encode('unicode_escape').decode()}'"
