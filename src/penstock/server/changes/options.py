"""Storage parameters as pg_class.reloptions has them: one of them switched off, and put back where it stood. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

AUTOVACUUM = "autovacuum_enabled"

# What loading sets it to, as the server then has it.
OFF = "false"

# As parse_bool_with_len reads them, in src/backend/utils/adt/bool.c.
_FALSE = ("false", "fals", "fal", "fa", "f", "off", "of", "no", "n", "0")


def is_off(options: Sequence[str], name: str = AUTOVACUUM) -> bool:
    """Return whether a boolean parameter is off.

    >>> is_off(["fillfactor=70", "autovacuum_enabled=Off"]), is_off([])
    (True, False)
    """
    value = _by_name(options).get(name)
    return value is not None and value.lower() in _FALSE


def plan_restore(now: Sequence[str], before: Sequence[str], name: str = AUTOVACUUM) -> list[tuple[str, str]] | None:
    """Return what to set, in this order, so that a parameter is as before; None where it is to be unset.

    SET moves what it sets to the end, and pg_dump writes parameters in their order: so all are set where that is needed
    to have the order back. What others have set meanwhile stays. Nothing is to be done where it is not OFF any more.

    >>> plan_restore(["fillfactor=70", "autovacuum_enabled=false"], ["autovacuum_enabled=on", "fillfactor=70"])
    [('autovacuum_enabled', 'on'), ('fillfactor', '70')]
    >>> plan_restore(["fillfactor=70", "autovacuum_enabled=false"], ["fillfactor=70"]) is None
    True
    """
    present, past = _by_name(now), _by_name(before)
    if present.get(name) != OFF:
        return []
    if name not in past:
        return None
    values = present | {name: past[name]}
    order = [key for key in past if key in values] + [key for key in values if key not in past]
    if [key for key in present if key != name] + [name] == order:
        return [(name, past[name])]
    return [(key, values[key]) for key in order]


def _by_name(options: Sequence[str]) -> dict[str, str]:
    return {key: value for key, _, value in (option.partition("=") for option in options)}
