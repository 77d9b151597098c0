"""The formats of files. A format is an object whose methods do what depends on a file's format.

`FORMATS` lists them, and `Format` (format.py) has the methods. format.py also compares and skips what is committed. A
new format is a class and an entry of the list. The other modules contain what several formats use: `columns` maps
fields to columns, and `sent` decides how records are sent and refuses an object whose records all have a wrong number
of fields.
"""

from __future__ import annotations

from penstock.core.values.dialect import DialectOptions
from penstock.core.values.source import ObjectSample
from penstock.loading.formats.columnar import Columnar
from penstock.loading.formats.format import Format
from penstock.loading.formats.jsonl import JsonLines
from penstock.loading.formats.text import DelimitedText
from penstock.loading.values.plan import TargetPlan

# All formats. An object has the first one that recognizes the object's beginning; binary ones are asked before the
# object is decoded as text. Delimited text recognizes every text.
FORMATS: list[Format] = [Columnar(), JsonLines(), DelimitedText()]


def find_format(sample: ObjectSample, options: DialectOptions) -> Format:
    """Return the format of an object, according to its beginning and the options."""
    if sample.format is not None:
        return _named(sample.format)
    texts = (each for each in FORMATS if not each.is_binary)
    return next(each for each in texts if each.recognize(sample.head, options, is_whole=sample.is_whole))


def format_of(target: TargetPlan) -> Format:
    """Return the format that the plan has found for a target's objects."""
    return _named(target.format)


def _named(name: str) -> Format:
    return next(each for each in FORMATS if each.name == name)
