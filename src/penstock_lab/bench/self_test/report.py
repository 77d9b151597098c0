"""The report of a self-test. It has no names, no addresses and no data. Pure.

The report has the settings, rights and versions that penstock knows. Other values of the server are left out. Messages
are reduced to their plain words.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from itertools import groupby
from typing import Any, Literal

from penstock.core.slotted import slotted

# The settings on which the result of a step may depend. Their values are numbers, or words that PostgreSQL defines.
_SETTINGS = (
    *("allow_alter_system", "archive_mode", "autovacuum", "checkpoint_completion_target", "checkpoint_timeout"),
    *("data_checksums", "fsync", "full_page_writes", "hot_standby", "maintenance_work_mem", "max_connections"),
    *("max_parallel_maintenance_workers", "max_wal_senders", "max_wal_size", "max_worker_processes", "min_wal_size"),
    *("reserved_connections", "shared_buffers", "superuser_reserved_connections", "synchronous_commit"),
    *("temp_file_limit", "wal_buffers", "wal_compression", "wal_level", "work_mem"),
)

_HIDDEN = "..."
# Text in quotes of any language. A quote without its end reaches to the end of the message.
_MARKS = "\xab\xbb\u2018-\u201f\u2039\u203a`"
_QUOTED = re.compile(rf"\"[^\"]*(?:\"|$)|(?<!\w)'[^']*(?:'|$)|[{_MARKS}].*?(?:[{_MARKS}']|$)")
_WORD = re.compile(r"[A-Za-z]+(?:-[A-Za-z]+)*(?:'[a-z]+)?")
_PUNCTUATION = ".,:;()[]"
# PostgreSQL names an object at the end of these messages without quotes.
_NAMED_LAST = ("permission denied for ", "must be owner of ")


@slotted
class StepResult:
    """Whether one step of the self-test succeeded, how long it took, and why it did not succeed."""

    name: str
    state: Literal["ok", "failed", "skipped"]
    seconds: float
    # Why the step was skipped, or what was wrong. penstock wrote this text, not the server.
    reason: str | None = None
    # The SQLSTATE and the message of the command's error. Names are removed from the message.
    sqlstate: str | None = None
    message: str | None = None


def hide_names(message: str, names: Iterable[str], *, sqlstate: str | None = None) -> str | None:
    """Return a message in which plain words are kept, and dots replace everything else.

    A plain word has only the letters A to Z, hyphens and apostrophes. It is not in quotes, and not part of a name.
    `names` are those of the server, the role and this machine. Return None if `sqlstate` is of class P0, because users
    write these messages.

    >>> hide_names('role "ann" of db.example.com may not use table 7, shop', ["shop"])
    'role ... of ... may not use table ...'
    """
    if (sqlstate or "").startswith("P0"):
        return None
    hidden = {part.casefold() for name in names for part in re.split(r"\W+", name) if part}
    words = [_keep(word, hidden) for word in _QUOTED.sub(f" {_HIDDEN} ", message).split()]
    if message.startswith(_NAMED_LAST):
        words[-1] = _HIDDEN
    return " ".join(word for word, _ in groupby(words))


def _keep(word: str, hidden: set[str]) -> str:
    plain = word.strip(_PUNCTUATION)
    is_kept = _WORD.fullmatch(plain) is not None and not hidden & {*re.split(r"\W+", plain.casefold())}
    return word if is_kept else _HIDDEN


def describe_server(examined: Mapping[str, Any]) -> dict[str, object]:
    """Return the part of what `penstock doctor --json` prints that the report contains."""
    facts = examined["facts"]
    return {
        "version_num": facts["server"]["version_num"],
        "product": facts["flavour"]["kind"],
        "is_pooled": facts["pooler"] is not None,
        "is_encrypted": None if facts["encryption"] is None else facts["encryption"]["is_encrypted"],
        "rights": {name: value for name, value in facts["rights"].items() if isinstance(value, bool)},
        "settings": {
            each["name"]: f"{each['value']}{each['unit'] or ''}"
            for each in facts["settings"]
            if each["name"] in _SETTINGS
        },
    }


def make_report(
    steps: Sequence[StepResult],
    *,
    versions: Mapping[str, object],
    server: Mapping[str, object] | None,
    options: Iterable[str],
    is_whole: bool,
) -> dict[str, object]:
    """Return the report as the object that is written in JSON.

    `options` are the names of the options that were given, without their values. If `is_whole` is false, the test was
    interrupted.
    """
    has_failed = any(step.state == "failed" for step in steps)
    return {
        "state": "failed" if has_failed else "ok" if is_whole else "interrupted",
        "versions": {name: value for name, value in versions.items() if name != "format"},
        "server": server,
        "options": sorted(options),
        "steps": [asdict(step) for step in steps],
    }


def describe_step(step: StepResult) -> str:
    """Return a line for a step.

    >>> describe_step(StepResult(name="settings", state="skipped", seconds=0.0, reason="not allowed"))
    'settings: skipped (not allowed)'
    """
    taken = "" if step.state == "skipped" else f" in {step.seconds:.1f} s"
    why = "; ".join(part for part in (step.reason, step.message, step.sqlstate) if part)
    return f"{step.name}: {step.state}{taken}{f' ({why})' if why else ''}"
