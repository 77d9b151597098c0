"""Who was active in a run of samples, and what was waited for.

Each sample stands for the real time since the one before it. Functions take any run of samples: a whole recording, or
the last few seconds of one that is being made.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from penstock.model.recording import Sample, SessionSample

# Active without a wait: inferred, since a backend that waits for a processor looks the same.
CPU = "CPU"


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """A session in one sample: `tick` is the sample's place, `weight_s` the time that it stands for."""

    tick: int
    weight_s: float
    session: SessionSample

    @property
    def wait(self) -> str:
        """What is waited for in lower case, as io:walsync: PostgreSQL 17 spells some events differently."""
        return name_wait(self.session).lower()


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A part of the activity: active sessions on average, and their share of all, 0 to 1."""

    name: str
    sessions: float
    share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Activity:
    """Active sessions on average (`sessions`) and their parts, largest first; `samples` counts them one by one."""

    elapsed_s: float
    samples: int
    sessions: float
    classes: tuple[Part, ...]
    waits: tuple[Part, ...]
    applications: tuple[Part, ...]
    statements: tuple[Part, ...]


def is_active(session: SessionSample) -> bool:
    """Return whether a backend works for somebody; a walsender says that it is active as long as it is there."""
    return session.state in {"active", "fastpath function call"} and session.backend_type != "walsender"


def measure_activity(samples: Sequence[Sample]) -> Activity:
    """Return the average active sessions and their parts by wait class, wait, application and statement."""
    moments = find_moments(samples)
    elapsed_s = sum(weights_of(samples))
    waits = divide(moments, elapsed_s, name_wait)
    return Activity(
        elapsed_s=elapsed_s,
        samples=len(moments),
        sessions=sum(part.sessions for part in waits),
        classes=divide(moments, elapsed_s, lambda session: session.wait_event_type or CPU),
        waits=waits,
        applications=divide(moments, elapsed_s, name_application),
        statements=divide(moments, elapsed_s, name_statement),
    )


def find_moments(samples: Sequence[Sample], counts: Callable[[SessionSample], bool] = is_active) -> list[Moment]:
    """Return the sessions of all samples that count, by default the active ones."""
    return [
        Moment(tick=tick, weight_s=weight_s, session=session)
        for tick, (sample, weight_s) in enumerate(zip(samples, weights_of(samples), strict=True))
        for session in sample.sessions
        if counts(session)
    ]


def weights_of(samples: Sequence[Sample]) -> list[float]:
    """Return the seconds that each sample stands for; alike where no time has passed yet."""
    weights = [sample.interval_s for sample in samples]
    return weights if any(weights) else [1.0] * len(samples)


def divide(moments: Iterable[Moment], elapsed_s: float, name: Callable[[SessionSample], str]) -> tuple[Part, ...]:
    """Return the parts of these moments by name, largest first; case makes no difference, nor a query's text."""
    seconds: dict[object, float] = {}
    names: dict[object, str] = {}
    for moment in moments:
        named = name(moment.session)
        key = (name is name_statement and moment.session.query_id) or named.lower()
        names.setdefault(key, named)
        seconds[key] = seconds.get(key, 0.0) + moment.weight_s
    total_s = sum(seconds.values())
    return tuple(
        Part(name=names[key], sessions=spent_s / elapsed_s, share=spent_s / total_s)
        for key, spent_s in sorted(seconds.items(), key=lambda item: -item[1])
        if spent_s
    )


def name_wait(session: SessionSample) -> str:
    """Return what an active session waits for, as IO:WalSync; CPU where it waits for nothing."""
    return CPU if session.wait_event_type is None else f"{session.wait_event_type}:{session.wait_event}"


def name_application(session: SessionSample) -> str:
    """Return the application's name."""
    return session.application or "(no name)"


def name_statement(session: SessionSample) -> str:
    """Return a statement on one line, or its id where its text is hidden."""
    return " ".join((session.query or f"(query {session.query_id or 'hidden'})").split())
