"""Finds the first record of a sample with another number of fields than expected, and says what to do about such. Pure.

loading asks here too if the server refuses a record.
"""

from __future__ import annotations

import re
import shlex
from typing import Final

from penstock import _native
from penstock.files.probe.content import Content, describe_conversion
from penstock.files.probe.form import make_form
from penstock.files.probe.options import DEFAULT_QUOTE
from penstock.model.source.dialect import Dialect
from penstock.model.source.source import Compression

# The end-of-data mark of COPY, in csv only before PostgreSQL 18; records after it are not checked here.
_END_OF_COPY: Final = b"\\."

ESCAPE_HINT: Final = r"Backslashes stand before quotes: use --escape '\\' if they escape them."

# The hint for a record that has one field too many. The record may end with a delimiter.
ENDS_WITH_DELIMITER: Final = (
    "The record ends with a delimiter, behind which is one more field: name all fields with --columns, and skip that"
    " one with --skip."
)
_BLANK: Final = Content(
    name="a file with a blank line",
    advice="The line is blank. Reject it with --on-error reject, or remove such lines",
    command="sed '/^[[:space:]]*$/d'",
    suffix=".filled",
)


def find_misfit(
    head: bytes, dialect: Dialect, *, is_whole: bool, field_count: int, ends_empty: bool = False
) -> tuple[_native.Record, int] | None:
    """Return a sample's first record with another number of fields, and that number, or None if all records fit.

    With `ends_empty` a record may have one more field, which is blank.
    """
    form = make_form(dialect.format, dialect.delimiter, dialect)
    for record in form.cut(head, is_whole=is_whole).whole[int(dialect.has_header) :]:
        if record.text == _END_OF_COPY:
            return None
        count = form.count_fields(record.text)
        if count != field_count and not (ends_empty and count == field_count + 1 and _ends_blank(form, record.text)):
            return record, count
    return None


def _ends_blank(form: _native.Form, record: bytes) -> bool:
    """Return whether the last field of a record is blank, in quotes or without."""
    try:
        return not form.split(record)[-1][0].strip()
    except _native.RecordError:
        return False


def escapes_quotes(record: bytes, delimiter: bytes) -> bool:
    r"""Return whether a field in quotes has quotes with a backslash before them, and would end well with that escape.

    >>> escapes_quotes(rb'1,"say \"yes\", twice"', b","), escapes_quotes(rb'"C:\","D:\"', b",")
    (True, False)
    """
    edge = rb"[\r\n" + re.escape(delimiter) + rb"]"
    part = rb'(?:[^"\\]|\\.)*'
    field = rb"(?:\A|(?<=" + edge + rb'))"' + part + rb'\\"' + part + rb'"(?=' + edge + rb"|\Z)"
    return b'\\"' in record and re.search(field, record, re.DOTALL) is not None


def explain_misfit(
    record: bytes, dialect: Dialect, *, field_count: int, uri: str, compression: Compression = "none"
) -> str | None:
    """Return what to do about a record with another number of fields, None if nothing in the record tells.

    `record` has no line end. `uri` and `compression` are the file's.
    """
    if dialect.format == "jsonl":
        return None
    has_default = (dialect.quote, dialect.escape) == (DEFAULT_QUOTE, DEFAULT_QUOTE)
    if has_default and escapes_quotes(record, dialect.delimiter.encode()):
        return ESCAPE_HINT
    count = make_form(dialect.format, dialect.delimiter, dialect).count_fields(record)
    if count == field_count + 1 and record.endswith(dialect.delimiter.encode()):
        return ENDS_WITH_DELIMITER
    if count >= field_count:
        return None
    found = _BLANK if not record.strip() else _describe_omitted(dialect, field_count)
    return describe_conversion(found, uri=uri, compression=compression)


def _describe_omitted(dialect: Dialect, field_count: int) -> Content:
    """Return how to fill records that omit their last fields; awk counts delimiters in quotes, too, and fills less."""
    delimiter = r"\t" if dialect.delimiter == "\t" else dialect.delimiter
    null = dialect.nulls[0].replace("\\", "\\\\").replace('"', r"\"")
    program = f'NF {{ while (NF < {field_count}) $(NF + 1) = "{null}" }} 1'
    return Content(
        name="a file whose records omit their last fields",
        advice="The record omits its last fields. Reject it with --on-error reject, or fill such records with nulls",
        command=f"awk -F {shlex.quote(delimiter)} -v OFS={shlex.quote(delimiter)} {shlex.quote(program)}",
        suffix=".filled",
    )
