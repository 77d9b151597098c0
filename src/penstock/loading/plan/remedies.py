"""Composes one command that has the options of all warnings and errors about how files are written. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from penstock.core.errors import PenstockError
from penstock.core.values.dialect import DialectOptions
from penstock.core.values.job import MAX_DELETE, LoadJob, TargetJob
from penstock.core.values.notice import Notice
from penstock.core.values.options import spell_options
from penstock.core.values.source import hides_part
from penstock.core.words import hide_secrets
from penstock.loading.values.plan import TargetPlan

# The largest number of sources with which a hint shows a command.
_SOURCES_SHOWN = 5
# The warnings about values whose notation, or null, options decide.
_ABOUT_VALUES = ("notation", "unclear-date", "literal-null")


def with_command(notices: Sequence[Notice], targets: Sequence[TargetPlan], load: LoadJob) -> tuple[Notice, ...]:
    """Return the warnings, with a command in the hint of the last one that has options. It has the options of all.

    If only one warning has options, a command is added only if the load creates the table: the ledger then has its
    files as loaded, and its columns get other types with the options, so the next load has to replace the table. A load
    that replaces the table cannot choose among records with one key, so none is added if the load does.
    """
    numbers = [number for number, notice in enumerate(notices) if notice.options]
    if len(targets) != 1 or not numbers:
        return tuple(notices)
    target, last = targets[0], notices[numbers[-1]]
    is_new = target.facts is None or target.takes_types
    if len(numbers) == 1 and not is_new:
        return tuple(notices)
    job = add_options(target, [notices[number].options or {} for number in numbers])
    if job is None or (is_new and job.landing.is_keyed and job.used_keep != "error"):
        return tuple(notices)
    job = _renew(job) if is_new else job
    is_open = any(not notice.options and notice.code in _ABOUT_VALUES for notice in notices)
    head = f"With the options of all warnings{' that leave no choice' if is_open else ''}"
    head = head if is_open or len(numbers) > 1 else "To load the table again"
    hint = f"{last.hint} {head}, {_compose(job, target, load)}"
    return (*notices[: numbers[-1]], replace(last, hint=hint), *notices[numbers[-1] + 1 :])


def _renew(job: TargetJob) -> TargetJob:
    """Return the job that replaces the table, with types for its columns as those of a new table."""
    types = "infer" if job.types == "widen" else job.types
    return replace(job, mode="replace", types=types, keep="error", max_delete=MAX_DELETE)


def add_command(
    error: PenstockError, targets: Sequence[TargetPlan], load: LoadJob, noted: Iterable[Mapping[str, Any] | None]
) -> None:
    """Add to an error's hint the command with the options of the error and of the warnings.

    `noted` are the options of each warning, as fields of DialectOptions. Nothing is added if they add nothing to the
    options of the error.
    """
    if len(targets) != 1 or not error.options:
        return
    target, own = targets[0], [error.options]
    job = add_options(target, [*filter(None, noted), *own])
    if job is not None and job != add_options(target, own):
        error.hint = f"{error.hint or ''} With the options of the warnings, too, {_compose(job, target, load)}".strip()


def add_options(target: TargetPlan, added: Iterable[Mapping[str, Any]]) -> TargetJob | None:
    """Return the target's job with more options for its files. Each item of `added` has fields of DialectOptions.

    Null strings are added to those of the dialect. If quoted fields are to be null too (--force-null), COPY accepts
    only one null string. Return None if the user or `added` ask for several, because the others would be lost.
    """
    found: dict[str, Any] = {"null": target.dialect.nulls}
    job = target.job
    needed = dict.fromkeys(target.dialect.nulls if job.dialect.force_null else job.dialect.null or ())
    for options in added:
        needed |= dict.fromkeys(options.get("null", ()))
        for name, value in options.items():
            before = found.get(name, getattr(job.dialect, name))
            if isinstance(value, tuple):
                found[name] = (*before, *(each for each in value if each not in before))
            else:
                found[name] = {**before, **value} if isinstance(value, Mapping) else value
    if found.get("force_null", job.dialect.force_null) and len(found["null"]) > 1:
        if len(needed) > 1:
            return None
        found["null"] = tuple(needed)
    if found["null"] == target.dialect.nulls:
        del found["null"]
    return replace(job, dialect=replace(job.dialect, **found))


def _compose(job: TargetJob, target: TargetPlan, load: LoadJob) -> str:
    """Return how to run a job: the whole command, or its options if the sources cannot be typed."""
    is_typeable = len(job.sources) <= _SOURCES_SHOWN and job.transform is None
    if not is_typeable or not all(map(_is_shown, job.sources)):
        before, options = target.job, job.dialect
        added = {name: getattr(options, name) for name in ("null", "force_null", "decimal_comma", "thousands")}
        added |= {"date_order": options.date_order, "encoding": options.encoding}
        changed = [
            *_spell_changed("--mode", job.mode, before.mode),
            *_spell_changed("--types", job.types, before.types),
        ]
        return f"run the command again with {shlex.join([*changed, *spell_options(DialectOptions(**added))])}"
    parts = (job, job.dialect, load, load.rules)
    return f"run: penstock load {shlex.join([*(word for part in parts for word in spell_options(part)), *job.sources])}"


def _is_shown(source: str) -> bool:
    """Return whether a command in a hint may name the source: it has no secret, and is not standard input."""
    return source != "-" and not hides_part(source) and hide_secrets(source) == source


def _spell_changed(option: str, value: str, before: str) -> list[str]:
    return [] if value == before else [option, value]
