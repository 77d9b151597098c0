"""Turns options, given by name, into a request: the job, the access to the server, and the housekeeping."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from penstock.core.errors import UsageError
from penstock.core.values.dialect import DialectOptions
from penstock.core.values.job import Access, Housekeeping, LoadJob, LoadRules, Request, TargetJob, Transform
from penstock.core.values.options import pick


def make_request(given: Mapping[str, Any], targets: Sequence[TargetJob]) -> Request:
    """Return the job, the access to the server and the housekeeping that options describe.

    `given` has the options that do not belong to a single table, by their names in Python. Raises UsageError.
    """
    return Request(
        job=LoadJob(targets=tuple(targets), rules=LoadRules(**pick(LoadRules, given)), **pick(LoadJob, given)),
        access=Access(**pick(Access, given)),
        housekeeping=Housekeeping(**pick(Housekeeping, given)),
    )


def make_target(given: Mapping[str, Any], *, sources: Sequence[str], folder: Path | None = None) -> TargetJob:
    """Return what is loaded into one table, and how. `given` has the options of the table, by their names in Python.

    `sources` are paths and URLs. The path of a transform is relative to `folder`. Raises UsageError.
    """
    options = pick(TargetJob, given)
    if isinstance(options.get("transform"), (str, Path)):
        options["transform"] = read_transform((folder or Path()) / options["transform"])
    dialect = replace(given.get("dialect") or DialectOptions(), **pick(DialectOptions, given))
    return TargetJob(sources=tuple(sources), dialect=dialect, **options)


def no_table() -> UsageError:
    """Return the error for a load for which neither a table nor a job file is given."""
    return UsageError("no table to load into", hint="Name it with --into TABLE, or give a job file (.toml) alone.")


def read_transform(path: Path) -> Transform:
    """Return the SQL statement in a file, with the file's name.

    The statement is read when the load begins, because the file may not exist when the load is resumed. Raises
    UsageError.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as exc:
        raise UsageError(f'could not read transform "{path}": {exc.strerror}') from exc
    except UnicodeDecodeError as exc:
        raise UsageError(f'transform "{path}" is not UTF-8', detail=f"Byte {exc.start} is not.") from exc
    if "\0" in text:
        raise UsageError(f'transform "{path}" holds a NUL character')
    return Transform(name=path.name, text=text)
