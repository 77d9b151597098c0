"""What was typed becomes rules: of the ledger, of readers, of faults, of the table meanwhile and of what follows."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

from penstock.cli.parsing import parse_duration, parse_size
from penstock.errors import UsageError
from penstock.model.job import LoadRules

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.model.job import AutovacuumRule, OnChanged, OnError, TriggerRule, WarningRule
    from penstock.model.shape import Indexes

_Word = TypeVar("_Word", bound=str)

_ON_OTHERS: Mapping[str, OnChanged] = {"error": "error", "load": "load", "skip": "skip"}
_ON_ERROR: Mapping[str, OnError] = {"stop": "stop", "reject": "reject"}
_INDEXES: Mapping[str, Indexes] = {"auto": "auto", "keep": "keep", "rebuild": "rebuild"}
_TRIGGERS: Mapping[str, TriggerRule] = {"keep": "keep", "disable": "disable"}
_AUTOVACUUM: Mapping[str, AutovacuumRule] = {"keep": "keep", "pause": "pause"}

_WARNINGS: Mapping[str, WarningRule] = {"show": "show", "error": "error"}


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleOptions:
    """What was said of everything but sources, table and columns, as it was typed; None where nothing was."""

    atomic: bool = False
    again: bool = False
    changed: str | None = None
    emptied: str | None = None
    no_wait: bool = False
    retry_for: str | None = None
    on_error: str | None = None
    max_rejects: str | None = None
    reject_file: str | None = None
    ignore_space: bool = False
    indexes: str | None = None
    triggers: str | None = None
    autovacuum: str | None = None
    vacuum: bool | None = None
    checkpoint: bool | None = None
    max_record: str | None = None
    warnings: str | None = None


def fill_rules(options: RuleOptions, said: Mapping[str, Any]) -> RuleOptions:
    """Return the options with what a job file says where nothing was typed.

    >>> fill_rules(RuleOptions(on_error="stop"), {"on_error": "reject", "retry_for": "1h"}).on_error
    'stop'
    """
    nothing = RuleOptions()
    unsaid = {name: value for name, value in said.items() if getattr(options, name) == getattr(nothing, name)}
    if isinstance(number := unsaid.get("max_rejects"), int):
        unsaid["max_rejects"] = str(number)
    return replace(options, **unsaid)


def parse_rules(options: RuleOptions) -> LoadRules:
    """Return the rules that were asked for. Raises UsageError."""
    defaults = LoadRules()
    return LoadRules(
        is_atomic=options.atomic,
        is_again=options.again,
        on_changed=_choose("--changed", options.changed, _ON_OTHERS, default=defaults.on_changed),
        on_emptied=_choose("--emptied", options.emptied, _ON_OTHERS, default=defaults.on_emptied),
        waits=not options.no_wait,
        retry_for_s=defaults.retry_for_s if options.retry_for is None else parse_duration(options.retry_for),
        on_error=_parse_on_error(options, default=defaults.on_error),
        max_rejects=_parse_max_rejects(options.max_rejects),
        ignores_space=options.ignore_space,
        indexes=_choose("--indexes", options.indexes, _INDEXES, default=defaults.indexes),
        triggers=_choose("--triggers", options.triggers, _TRIGGERS, default=defaults.triggers),
        autovacuum=_choose(
            "--autovacuum",
            options.autovacuum,
            _AUTOVACUUM,
            default=defaults.autovacuum,
            more=": it is paused at the table alone, while it is loaded",
        ),
        vacuums=options.vacuum is not False,
        checkpoints=options.checkpoint,
        max_record_bytes=defaults.max_record_bytes if options.max_record is None else parse_size(options.max_record),
        warnings=_choose("--warnings", options.warnings, _WARNINGS, default=defaults.warnings),
    )


def _choose(option: str, text: str | None, words: Mapping[str, _Word], *, default: _Word, more: str = "") -> _Word:
    """Return the word that was typed, if it is one of those."""
    if text is None:
        return default
    if text not in words:
        *others, last = words
        raise UsageError(
            f'there is no {option} "{text}"', hint=f"Use {option} with {', '.join(others)} or {last}{more}."
        )
    return words[text]


def _parse_on_error(options: RuleOptions, *, default: OnError) -> OnError:
    found = _choose("--on-error", options.on_error, _ON_ERROR, default=default)
    refused = {"--max-rejects": options.max_rejects, "--reject-file": options.reject_file}
    for name, value in refused.items():
        if value is not None and found == "stop":
            raise UsageError(f"{name} needs --on-error reject", hint="By default the first bad record ends the load.")
    return found


def _parse_max_rejects(text: str | None) -> int | None:
    if text is None:
        return None
    if not (text.isascii() and text.isdigit()):
        raise UsageError(f"{text!r} is not a number of records", hint="Use --max-rejects with a number from 0 upwards.")
    return int(text)
