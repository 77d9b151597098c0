"""The formats of files. A format is an object, which answers everything in a load that depends on what a file is.

`FORMATS` lists them, and `Format` (format.py) has the questions. A new format is a class and a line of the list. The
other modules are what formats share: `columns` maps fields to columns, `fit` refuses an object whose records all have
another number of fields, `sums` and `coverage` compare and skip what is committed, `sent` says how records are sent.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.loading.formats.columnar import Columnar
from penstock.loading.formats.jsonl import JsonLines
from penstock.loading.formats.text import DelimitedText

if TYPE_CHECKING:
    from penstock.core.values.dialect import DialectOptions
    from penstock.core.values.source import ObjectSample
    from penstock.loading.formats.format import Format
    from penstock.loading.values.plan import TargetPlan

# The first one that owns an object's beginning is the object's format. Delimited text owns every beginning.
FORMATS: list[Format] = [Columnar(), JsonLines(), DelimitedText()]


def find_format(sample: ObjectSample, options: DialectOptions) -> Format:
    """Return the format of an object, given its beginning and the options."""
    return next(each for each in FORMATS if each.owns(sample, options))


def format_of(target: TargetPlan) -> Format:
    """Return the format of a target's objects."""
    return next(each for each in FORMATS if each.name == target.format)
