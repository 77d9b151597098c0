"""Turns options, given by name or in a job file, into a request: the job, the access to the server, the housekeeping.

A job file is a TOML file that describes one load of many targets. Its keys are the names of options.
"""

from __future__ import annotations

import glob
import os
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from penstock import __version__
from penstock.core.errors import UsageError
from penstock.core.values.dialect import DialectOptions
from penstock.core.values.job import (
    LOAD_KINDS,
    TARGET_KINDS,
    Access,
    Housekeeping,
    LoadJob,
    LoadRules,
    Request,
    TargetJob,
    Transform,
)
from penstock.core.values.options import OptionError, option_fields, pick, read_texts
from penstock.core.words import suggest
from penstock.settings.refusals import explain_refusal

_LOAD_KEYS = [name for kind in LOAD_KINDS for name in option_fields(kind)]
_TARGET_KEYS = ["sources", *(name for kind in TARGET_KINDS for name in option_fields(kind))]
# The key for the oldest version of penstock that can load the file.
_NEEDS = "penstock"


def read_job_file(path: Path, typed: Mapping[str, Any] | None = None) -> Request:
    """Return the job, the access to the server and the housekeeping that a TOML file describes.

    The options in `typed`, from the command line, override those in the file. Raises UsageError, which names the file,
    the target and the key.
    """
    content = _read(path)
    tables = content.pop("target", None)
    with _naming_section(path, "top level"):
        _refuse_later(content.pop(_NEEDS, "0"), content, tables if isinstance(tables, list) else [])
        _refuse_unknown(content, _LOAD_KEYS, belonging=_TARGET_KEYS)
        if not isinstance(tables, list) or not tables or not all(isinstance(table, dict) for table in tables):
            raise UsageError('key "target" is missing', hint="A job is made of [[target]] tables.")
    targets = [_read_target(table, path=path, number=number) for number, table in enumerate(tables, start=1)]
    if isinstance(reject_file := content.get("reject_file"), str):
        content["reject_file"] = path.parent / os.path.expanduser(reject_file)  # noqa: PTH111 (as of sources)
    with _naming_section(path, "top level"):
        request = make_request(content, targets)
    return make_request({**content, **typed}, targets) if typed else request


def _read(path: Path) -> dict[str, Any]:
    try:
        # utf-8-sig skips the byte-order mark that editors on Windows write at the start of UTF-8 files.
        return tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as exc:
        raise UsageError(f'could not read job file "{path}": {exc.strerror}') from exc
    except UnicodeDecodeError as exc:
        raise UsageError(f'job file "{path}" is not UTF-8', detail=f"Byte {exc.start} is not.") from exc
    except tomllib.TOMLDecodeError as exc:
        raise UsageError(f'job file "{path}" is not TOML', detail=f"{exc}.") from exc


def _read_target(table: dict[str, Any], *, path: Path, number: int) -> TargetJob:
    with _naming_section(path, f"target {number}"):
        _refuse_unknown(table, _TARGET_KEYS)
        for key in ("sources", "into"):
            if key not in table:
                raise UsageError(f'key "{key}" is missing', hint=f"Add {key} = ... to the [[target]].")
        try:
            sources = read_texts(table["sources"])
        except ValueError as exc:
            raise OptionError("sources", table["sources"], str(exc)) from None
        resolved = [resolve_source(source, folder=os.fspath(path.parent)) for source in sources]
        return make_target(table, sources=resolved, folder=path.parent)


def resolve_source(source: str, *, folder: str) -> str:
    """Return a source of a job file in `folder`, relative to the current directory.

    URLs, the name `-` of standard input and absolute paths are returned unchanged.

    >>> resolve_source("part-*.csv", folder="jobs[1]")
    'jobs[[]1]/part-*.csv'
    """
    if source == "-" or "://" in source:
        return source
    if source.startswith("~"):
        return os.path.expanduser(source)  # noqa: PTH111 (pathlib rewrites paths)
    if folder in ("", "."):
        return source
    # Wildcards in the source keep their meaning, but a bracket in the folder's name is not a wildcard.
    base = glob.escape(folder) if glob.has_magic(source) else folder
    return os.path.join(base, source)  # noqa: PTH118 (pathlib rewrites paths)


@contextmanager
def _naming_section(path: Path, section: str) -> Iterator[None]:
    """Add the file and the section in it to the message of each UsageError."""
    try:
        yield
    except UsageError as error:
        named = error.spelled(f'key "{error.name}"') if isinstance(error, OptionError) else error
        raise UsageError(
            f'job file "{path}": {section}: {named.message}', detail=named.detail, hint=named.hint
        ) from None


def _refuse_later(needed: object, content: Mapping[str, Any], tables: Sequence[Any]) -> None:
    """Raise UsageError if the file needs a later penstock. The error names the keys that this version does not know."""
    if not isinstance(needed, str) or re.fullmatch(r"\d+(\.\d+){0,2}", needed) is None:
        raise OptionError(_NEEDS, needed, 'a version such as "1.2"')
    if _read_version(needed) <= _read_version(__version__):
        return
    keys = {*content} - {*_LOAD_KEYS}
    keys.update(key for table in tables if isinstance(table, dict) for key in table if key not in _TARGET_KEYS)
    unknown = f" It does not know: {', '.join(sorted(keys))}." if keys else ""
    raise UsageError(
        f"penstock {needed} or a later one is needed",
        detail=f"This is penstock {__version__}.{unknown}",
        hint=f"Install penstock {needed}, or a later one.",
    )


def _read_version(version: str) -> list[int]:
    """Return the numbers of a version; zeros at the end make no difference.

    >>> _read_version("1.0") == _read_version("1.0.0rc1"), _read_version("1.10") > _read_version("1.9.1")
    (True, True)
    """
    numbers = [int(number) for number in re.findall(r"\d+", version)[:3]]
    return numbers + [0] * (3 - len(numbers))


def _refuse_unknown(table: Mapping[str, Any], known: list[str], *, belonging: list[str] | None = None) -> None:
    """Raise UsageError for a key that is not in `known`. `belonging` are the keys that belong in a [[target]]."""
    key = next((key for key in table if key not in known), None)
    if key is None:
        return
    if (refusal := explain_refusal(key)) is not None:
        raise refusal
    near = suggest(key, known)
    if key in (belonging or ()):
        hint = f'"{key}" belongs in a [[target]].'
    else:
        hint = f'Perhaps you meant "{near}".' if near else f"Known keys here are {', '.join(known)}."
    raise UsageError(f'unknown key "{key}"', hint=hint)


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
