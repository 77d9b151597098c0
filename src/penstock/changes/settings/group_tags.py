"""Leases as tags of a parameter group, and back. Pure.

RDS has tags of letters, digits, blanks and _ . : / = + - @, of 128 characters the key and 256 the value.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from penstock.changes.settings.profiles import LEASABLE
from penstock.changes.settings.values import is_sound
from penstock.model.server.settings import Lease, PriorSetting, ServerIdentity

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_LEASE = "penstock:lease:"
_WANTED = "penstock:wanted:"
_PRIOR = "penstock:prior:"

_TIME = "%Y-%m-%dT%H:%M:%SZ"

# So that all words of a lease fit.
_WORD_LENGTH = 56

_FORBIDDEN = re.compile(r"[^A-Za-z0-9_.:/@-]")


def write_number(_: str, value: float) -> str:
    """Return a setting as a parameter group has it: a number in pg_settings' unit.

    >>> write_number("checkpoint_timeout", 1800.0)
    '1800'
    """
    return f"{value:.10g}"


def lease_tags(lease: Lease) -> dict[str, str]:
    """Return a lease as tags."""
    words = {
        "by": lease.client,
        "for": lease.reason,
        "on": lease.server.resource_id or "",
        "began": lease.began_at.astimezone(UTC).strftime(_TIME),
        "until": "" if lease.until is None else lease.until.astimezone(UTC).strftime(_TIME),
    }
    wanted = {name: write_number(name, value) for name, value in lease.wanted.items()}
    return {f"{_LEASE}{lease.lease_id}": _join(words), f"{_WANTED}{lease.lease_id}": _join(wanted)}


def lease_keys(lease_id: str) -> list[str]:
    """Return the keys of a lease's tags."""
    return [f"{_LEASE}{lease_id}", f"{_WANTED}{lease_id}"]


def prior_tags(priors: Iterable[PriorSetting]) -> dict[str, str]:
    """Return what parameters were as tags."""
    tags = {}
    for prior in priors:
        words = {"value": prior.value, "was": prior.auto_text or "", "ours": "+".join(prior.ours)}
        tags[prior_key(prior.name)] = " ".join(f"{name}={word}" for name, word in words.items())
    return tags


def prior_key(name: str) -> str:
    """Return the key of a parameter's tag."""
    return f"{_PRIOR}{name}"


def read_tags(tags: Mapping[str, str]) -> tuple[list[Lease], list[PriorSetting]]:
    """Return the leases of a group, the oldest first, and what parameters were before them; other tags are left out."""
    leases = [
        _read_lease(key.removeprefix(_LEASE), value, tags.get(key.replace(_LEASE, _WANTED, 1), ""))
        for key, value in tags.items()
        if key.startswith(_LEASE)
    ]
    priors = [
        _read_prior(key.removeprefix(_PRIOR), value)
        for key, value in sorted(tags.items())
        if key.startswith(_PRIOR) and key.removeprefix(_PRIOR) in LEASABLE
    ]
    return sorted(leases, key=lambda lease: (lease.began_at, lease.lease_id)), priors


def _read_lease(lease_id: str, text: str, wanted: str) -> Lease:
    words = _split(text)
    return Lease(
        lease_id=lease_id,
        owner="",
        client=words.get("by", ""),
        reason=words.get("for", ""),
        profile="",
        began_at=_read_time(words.get("began")) or datetime(1970, 1, 1, tzinfo=UTC),
        until=_read_time(words.get("until")),
        server=ServerIdentity(
            system_identifier=0, timeline=0, address=None, port=None, resource_id=words.get("on") or "an instance"
        ),
        wanted={name: float(value) for name, value in _split(wanted).items() if is_sound(name, value)},
    )


def _read_prior(name: str, text: str) -> PriorSetting:
    words = _split(text)
    return PriorSetting(
        name=name,
        value=words.get("value", ""),
        unit=LEASABLE[name] or None,
        source="parameter group",
        source_file=None,
        auto_text=words.get("was") or None,
        auto_line=None,
        ours=tuple(word for word in words.get("ours", "").split("+") if word),
    )


def _read_time(text: str | None) -> datetime | None:
    try:
        return datetime.strptime(text or "", _TIME).replace(tzinfo=UTC)
    except ValueError:
        return None


def _join(words: Mapping[str, str]) -> str:
    return " ".join(f"{name}={_FORBIDDEN.sub('_', word)[:_WORD_LENGTH]}" for name, word in words.items())


def _split(text: str) -> dict[str, str]:
    return {name: value for name, equals, value in (word.partition("=") for word in text.split()) if equals}
