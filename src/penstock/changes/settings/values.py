"""Converts values of settings between users' text, numbers, and the text of ALTER SYSTEM or RDS. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable

from penstock.changes.settings.profiles import LEASABLE
from penstock.errors import UsageError
from penstock.model.refusals import refuse_value

# The factors from the units that a user may write to the setting's unit, as in PostgreSQL (memory_unit_conversion_table
# and time_unit_conversion_table in src/backend/utils/misc/guc.c).
_FACTORS = {
    "MB": {"": 1.0, "B": 1 / 1024**2, "kB": 1 / 1024, "MB": 1.0, "GB": 1024.0, "TB": 1024.0 * 1024},
    "s": {"": 1.0, "us": 0.000001, "ms": 0.001, "s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0},
    "": {"": 1.0},
}

# The least and the greatest value of each setting that the server allows.
_RANGES = {
    "max_wal_size": (2, 2_147_483_647),
    "min_wal_size": (2, 2_147_483_647),
    "checkpoint_timeout": (30, 86400),
    "checkpoint_completion_target": (0, 1),
}

_NUMBER = re.compile(r"(\d+(?:\.\d*)?|\.\d+) *([A-Za-z]*)")


def parse_assignments(texts: Iterable[str]) -> dict[str, float]:
    """Return the settings of NAME=VALUE words as numbers in pg_settings' units.

    Raises UsageError. For a setting that penstock never changes, the error gives the reason.

    >>> parse_assignments(["max_wal_size=8GB", "checkpoint_timeout=30min"])
    {'max_wal_size': 8192.0, 'checkpoint_timeout': 1800.0}
    """
    found: dict[str, float] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        name = name.strip().lower()
        if not equals:
            raise UsageError(f'"{text}" is not a setting', hint="Write NAME=VALUE.")
        refuse_value(name, value)
        if name not in LEASABLE:
            raise UsageError(
                f"penstock does not change {name}",
                detail=f"It changes only these settings, from which a load gains: {', '.join(LEASABLE)}.",
                hint="Change other settings with ALTER SYSTEM or in the server's files.",
            )
        found[name] = parse_value(name, value)
    return found


def parse_value(name: str, text: str) -> float:
    """Return a leasable setting's value as a number in pg_settings' unit. Raises UsageError."""
    match = _NUMBER.fullmatch(text.strip().strip("'"))
    factors = _FACTORS[LEASABLE[name]]
    if match is None or match[2] not in factors:
        units = ", ".join(unit for unit in factors if unit)
        raise UsageError(
            f'invalid value "{text}" for {name}', hint=f"Write a number{f' and a unit: {units}' if units else ''}."
        )
    value = float(match[1]) * factors[match[2]]
    # Round as the server does.
    value = float(round(value)) if LEASABLE[name] else value
    low, high = _RANGES[name]
    if not low <= value <= high:
        raise UsageError(f"{name} must be from {low} to {high}{LEASABLE[name]}", detail=f'"{text}" was given.')
    return value


def to_text(name: str, value: float) -> str:
    """Return a number in pg_settings' unit as the text that ALTER SYSTEM takes.

    >>> to_text("max_wal_size", 8192), to_text("checkpoint_completion_target", 0.9)
    ('8192MB', '0.9')
    """
    number = f"{value:.10g}" if name == "checkpoint_completion_target" else str(round(value))
    return f"{number}{LEASABLE[name]}"


def write_number(_: str, value: float) -> str:
    """Return a number in pg_settings' unit as the text that a parameter group takes: the number alone.

    >>> write_number("checkpoint_timeout", 1800.0)
    '1800'
    """
    return f"{value:.10g}"


def show(value: str, unit: str | None) -> str:
    """Return a value and unit of pg_settings in the largest unit without a fraction, much as SHOW does.

    >>> show("8192", "MB"), show("1800", "s"), show("16384", "8kB"), show("0.9", None)
    ('8GB', '30min', '128MB', '0.9')
    """
    pages = re.fullmatch(r"(\d*)([kM]B)", unit or "")
    if not re.fullmatch(r"-?\d+", value) or int(value) <= 0 or (unit != "s" and pages is None):
        return f"{value}{unit or ''}"
    number = int(value)
    steps = (("s", 60), ("min", 60), ("h", 24), ("d", None)) if unit == "s" else _MEMORY
    name = "s" if pages is None else pages[2]
    if pages is not None:
        number *= int(pages[1] or 1)
    names = [step for step, _ in steps]
    for step, factor in steps[names.index(name) :]:
        name = step
        if factor is None or number % factor:
            break
        number //= factor
    return f"{number}{name}"


_MEMORY: tuple[tuple[str, int | None], ...] = (("kB", 1024), ("MB", 1024), ("GB", 1024), ("TB", None))


def is_sound(name: str, text: str) -> bool:
    """Whether a recorded text may be given to ALTER SYSTEM. Only a number for a leasable setting may.

    >>> is_sound("max_wal_size", "8GB"), is_sound("archive_command", "/bin/sh"), is_sound("max_wal_size", "x")
    (True, False, False)
    """
    match = _NUMBER.fullmatch(text)
    return name in LEASABLE and match is not None and match[2] in _FACTORS[LEASABLE[name]]
