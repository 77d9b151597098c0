"""Job files: one load of many targets, written down in TOML.

The file is checked here as far as its form goes: every key known, every value of its type. What the values mean is
judged as for the command line's options. pydantic is imported with this module, so import it only for a job file.
"""

from __future__ import annotations

import difflib
import glob
import os
import tomllib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from penstock.errors import UsageError
from penstock.files.probe import parse_character
from penstock.loading.transformfile import read_transform
from penstock.model.dialect import DialectOptions
from penstock.model.job import LoadJob, TargetJob
from penstock.model.names import parse_table_name
from penstock.model.refusals import explain_refusal

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFile:
    """A job and where it goes; `to` and `role` are None where the file is silent. `to` may hold a password.

    `rules` is what the file says of them, by the names of the options without dashes; the job does not have them yet.
    `settings` is what becomes of the server's settings, None where the file is silent.
    """

    job: LoadJob
    to: str | None
    role: str | None
    rules: Mapping[str, Any] = field(default_factory=dict)
    settings: str | None = None

    def __repr__(self) -> str:
        return f"JobFile({self.job!r}, role={self.role!r})"


def _as_list(value: object) -> object:
    return [value] if isinstance(value, str) else value


def _as_session_count(value: object) -> object:
    return None if value == "auto" else value


_Strings = Annotated[list[str], BeforeValidator(_as_list)]


class _Table(BaseModel):
    # Strict: header = "yes" is a mistake, and null = 0 would not mean the text that is meant.
    model_config = ConfigDict(extra="forbid", strict=True)


class _Target(_Table):
    sources: Annotated[_Strings, Field(min_length=1)]
    into: str
    format: Literal["csv", "text", "tsv"] | None = None
    delimiter: str | None = None
    quote: str | None = None
    escape: str | None = None
    null: _Strings | None = None
    header: bool | None = None
    encoding: str | None = None
    columns: Annotated[list[str], Field(min_length=1)] | None = None
    set: dict[str, str] = {}
    skip: _Strings = []
    create: bool = False
    mode: Literal["append", "truncate", "replace", "upsert", "insert-new"] = "append"
    key: _Strings = []
    keep: Literal["first", "last", "error"] = "error"
    transform: str | None = None


class _Rules(_Table):
    atomic: bool = False
    changed: Literal["error", "load", "skip"] | None = None
    emptied: Literal["error", "load", "skip"] | None = None
    retry_for: str | None = None
    on_error: Literal["stop", "reject"] | None = None
    max_rejects: Annotated[int | None, Field(ge=0)] = None
    indexes: Literal["auto", "keep", "rebuild"] | None = None
    triggers: Literal["keep", "disable"] | None = None
    autovacuum: Literal["keep", "pause"] | None = None
    vacuum: bool | None = None
    checkpoint: bool | None = None
    max_record: str | None = None
    warnings: Literal["show", "error"] | None = None


class _Job(_Rules):
    to: str | None = None
    role: str | None = None
    sessions: Annotated[int | None, Field(ge=1), BeforeValidator(_as_session_count)] = None
    settings: str | None = None
    target: Annotated[list[_Target], Field(min_length=1)]


def read_job_file(path: Path) -> JobFile:
    """Return the job that a TOML file describes. Raises UsageError naming the file, the target and the key."""
    try:
        # Editors of Windows put a byte-order mark before what they save as UTF-8.
        content = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as exc:
        raise UsageError(f'could not read job file "{path}": {exc.strerror}') from exc
    except UnicodeDecodeError as exc:
        raise UsageError(f'job file "{path}" is not UTF-8', detail=f"Byte {exc.start} is not.") from exc
    except tomllib.TOMLDecodeError as exc:
        raise UsageError(f'job file "{path}" is not TOML', detail=f"{exc}.") from exc
    try:
        parsed = _Job.model_validate(content)
    except ValidationError as exc:
        # Without the cause: it quotes the file's values, and `to` may hold a password.
        raise _describe(exc.errors(include_url=False, include_input=False), path) from None
    targets = tuple(
        _make_target(target, path=path, number=number) for number, target in enumerate(parsed.target, start=1)
    )
    return JobFile(
        job=LoadJob(targets=targets, sessions=parsed.sessions),
        to=parsed.to,
        role=parsed.role,
        rules=parsed.model_dump(include=set(_Rules.model_fields), exclude_unset=True),
        settings=parsed.settings,
    )


def _make_target(target: _Target, *, path: Path, number: int) -> TargetJob:
    try:
        table = parse_table_name(target.into)
    except UsageError as exc:
        raise UsageError(exc.message, detail=f"{path}, target {number}, key into.", hint=exc.hint) from exc
    return TargetJob(
        sources=tuple(resolve_source(source, folder=os.fspath(path.parent)) for source in target.sources),
        table=table,
        dialect=DialectOptions(
            format=target.format,
            delimiter=_character(target.delimiter),
            quote=_character(target.quote),
            escape=_character(target.escape),
            nulls=None if target.null is None else tuple(target.null),
            has_header=target.header,
            encoding=target.encoding,
        ),
        columns=None if target.columns is None else tuple(target.columns),
        constants=target.set,
        skip=tuple(target.skip),
        create=target.create,
        mode=target.mode,
        key=tuple(target.key),
        keep=target.keep,
        transform=None if target.transform is None else read_transform(path.parent / target.transform),
    )


def _character(text: str | None) -> str | None:
    return None if text is None else parse_character(text)


def resolve_source(source: str, *, folder: str) -> str:
    """Return a job file's source as seen from the current directory; URLs and standard input stay as they are.

    >>> resolve_source("part-*.csv", folder="jobs[1]")
    'jobs[[]1]/part-*.csv'
    """
    if source == "-" or "://" in source:
        return source
    if source.startswith("~"):
        return os.path.expanduser(source)  # noqa: PTH111 (pathlib rewrites paths)
    if folder in ("", "."):
        return source
    # A wildcard in the source is one; a bracket in the folder's name is not.
    base = glob.escape(folder) if glob.has_magic(source) else folder
    return os.path.join(base, source)  # noqa: PTH118 (pathlib rewrites paths)


def _describe(errors: list[Any], path: Path) -> UsageError:
    """Return the first complaint as a message, with all of them as its detail."""
    # A key that is unknown is mostly why another is missing.
    errors = sorted(errors, key=lambda error: error["type"] != "extra_forbidden")
    first = errors[0]
    refusal = explain_refusal(_key(first["loc"])) if first["type"] == "extra_forbidden" else None
    if refusal is not None:
        refusal.detail = f'{refusal.detail} Key "{_key(first["loc"])}" of job file "{path}" asks for it.'
        return refusal
    complaints = [f"{_place(error['loc'])}: {_complaint(error)}" for error in errors]
    return UsageError(
        f'job file "{path}": {complaints[0]}',
        detail="Also " + "; ".join(complaints[1:]) + "." if len(complaints) > 1 else None,
        hint=_hint(first),
    )


def _complaint(error: dict[str, Any]) -> str:
    key = f'"{_key(error["loc"])}"'
    if error["type"] == "extra_forbidden":
        return f"unknown key {key}"
    if error["type"] == "missing":
        return f"key {key} is missing"
    message: str = error["msg"]
    return f"key {key}: {message[:1].lower()}{message[1:]}"


def _place(location: tuple[str | int, ...]) -> str:
    """Return which table of the file is meant; targets count from 1."""
    if len(location) > 1 and location[0] == "target" and isinstance(location[1], int):
        return f"target {location[1] + 1}"
    return "top level"


def _key(location: tuple[str | int, ...]) -> str:
    """Return the key's path within its table: pydantic names branches of its own besides, in other letters."""
    rest = location[2:] if location[0] == "target" and len(location) > 2 else location
    return ".".join(str(part) for part in rest if isinstance(part, str))


def _hint(error: dict[str, Any]) -> str | None:
    if error["loc"] == ("target",):
        return "A job is made of [[target]] tables."
    if error["type"] not in ("extra_forbidden", "missing"):
        return None
    in_target = len(error["loc"]) > 2
    known = (_Target if in_target else _Job).model_fields
    key = str(error["loc"][-1])
    if error["type"] == "missing":
        return f"Add {key} = ... to the [[target]]."
    if not in_target and key in _Target.model_fields:
        return f'"{key}" belongs in a [[target]].'
    near = difflib.get_close_matches(key, known, n=1)
    if near:
        return f'Perhaps you meant "{near[0]}".'
    return f"Known keys here are {', '.join(known)}."
