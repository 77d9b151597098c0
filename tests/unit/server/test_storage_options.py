"""A storage parameter that was switched off comes back with its value, and at its place among the others."""

from __future__ import annotations

import doctest

from hypothesis import given
from hypothesis import strategies as st

from penstock.server.changes import autovacuum
from penstock.server.changes.autovacuum import AUTOVACUUM, OFF, is_off, plan_restore

_NAMES = st.sampled_from(["fillfactor", "parallel_workers", "autovacuum_vacuum_threshold", "toast_tuple_target"])
_OTHERS = st.dictionaries(_NAMES, st.sampled_from(["50", "70", "100"]))
_OWN = st.sampled_from([None, "true", "on", "1", "False"])


def alter(now: dict[str, str], assignments: list[tuple[str, str]] | None) -> dict[str, str]:
    """Do as ALTER TABLE SET, or RESET for None, does: what is set goes to the end (transformRelOptions)."""
    if assignments is None:
        return {name: value for name, value in now.items() if name != AUTOVACUUM}
    kept = {name: value for name, value in now.items() if name not in dict(assignments)}
    return kept | dict(assignments)


def spell(parameters: dict[str, str]) -> list[str]:
    """Return parameters as pg_class.reloptions has them."""
    return [f"{name}={value}" for name, value in parameters.items()]


@given(_OTHERS, _OWN, st.integers(0, 4))
def test_parameters_are_as_they_were(others: dict[str, str], own: str | None, place: int) -> None:
    """Their order too, which pg_dump writes."""
    before = list(others.items())
    if own is not None:
        before.insert(place, (AUTOVACUUM, own))
    meanwhile = alter(dict(before), [(AUTOVACUUM, OFF)])
    after = alter(meanwhile, plan_restore(spell(meanwhile), spell(dict(before))))
    assert list(after.items()) == before


@given(_OTHERS, _OWN, _OTHERS)
def test_what_others_have_set_stays(others: dict[str, str], own: str | None, changed: dict[str, str]) -> None:
    """Whatever its place is then."""
    before = others | ({} if own is None else {AUTOVACUUM: own})
    meanwhile = alter(alter(before, [(AUTOVACUUM, OFF)]), list(changed.items()))
    after = alter(meanwhile, plan_restore(spell(meanwhile), spell(before)))
    assert after == others | changed | ({} if own is None else {AUTOVACUUM: own})


def test_parameter_that_is_not_ours_any_more_is_left() -> None:
    """Somebody has set it, or unset it."""
    assert plan_restore([f"{AUTOVACUUM}=true"], []) == []
    assert plan_restore([], [f"{AUTOVACUUM}=true"]) == []


def test_off_is_read_as_postgresql_reads_it() -> None:
    """Where it is off already there is nothing to switch, and nothing to restore."""
    assert all(is_off([f"{AUTOVACUUM}={word}"]) for word in ("off", "FALSE", "0", "no", "f"))
    assert not any(is_off([f"{AUTOVACUUM}={word}"]) for word in ("on", "true", "1", "yes", "o"))


def test_examples_hold() -> None:
    """What a docstring shows is what happens."""
    assert doctest.testmod(autovacuum).failed == 0
