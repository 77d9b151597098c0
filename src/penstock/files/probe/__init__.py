"""Finds the dialect of a file from its first block. Pure.

`options` checks what the user asked for, `form` finds format and delimiter, `fields` splits records as COPY
does (the Rust core cuts and splits), `header` looks at names and encoding, `mangling` at what a dialect would spoil,
`misfit` at records with another number of fields, `agreement` at further files, `content` recognizes what is not
delimited text, `json_lines` and `columnar` describe such files that can be loaded.
The rest of package files reads the block, and the caller gives the table's columns.
"""

from __future__ import annotations

from penstock.files.probe.agreement import Contradiction, find_contradiction, refuse_unclear_escapes
from penstock.files.probe.content import check_is_delimited
from penstock.files.probe.fields import find_header, split_header, split_record
from penstock.files.probe.mangling import find_null_words
from penstock.files.probe.misfit import explain_misfit, find_misfit
from penstock.files.probe.options import validate_options
from penstock.files.probe.probing import ProbeResult, probe_dialect, separator_notice

__all__ = [
    "Contradiction",
    "ProbeResult",
    "check_is_delimited",
    "explain_misfit",
    "find_contradiction",
    "find_header",
    "find_misfit",
    "find_null_words",
    "probe_dialect",
    "refuse_unclear_escapes",
    "separator_notice",
    "split_header",
    "split_record",
    "validate_options",
]
