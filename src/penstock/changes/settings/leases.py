"""Leases on a server's settings: written down, applied, restored; wherever they are written down and settings are set.

At every line: the lease is committed before the first change of a setting and removed after the last is in force, so
that a process that dies anywhere leaves a lease that no session holds. Whoever comes next finds a setting's text to be
the prior one, one of the lease's, or somebody else's, and each of them says what to do (moves.py).
"""

from __future__ import annotations

import logging
import uuid
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import TYPE_CHECKING, ClassVar, NamedTuple, Protocol

from penstock.changes.settings.decide import decide, missing_grants
from penstock.changes.settings.moves import settle
from penstock.changes.settings.values import is_sound, show
from penstock.errors import TargetError
from penstock.model.server.settings import Lease, LeaseReport, PriorSetting, SettingResult, SettingsOverview
from penstock.server.facts.settings import read_settings

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from contextlib import AbstractContextManager
    from datetime import datetime

    from penstock.model.server.settings import (
        Profile,
        ServerIdentity,
        SettingMove,
        SettingsDecision,
        SettingsFacts,
        SettingState,
    )
    from penstock.server.connect.connection import Connection

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseRequest:
    """Who asks for a lease and why; `lasts_s` is how long it stands by itself, None: as long as the session.

    `lease_id` will be the lease's.
    """

    profile: Profile
    client: str
    reason: str
    lasts_s: float | None = None
    expected_wal_bytes: int | None = None
    wal_free_bytes: int | None = None
    lease_id: str = field(default_factory=lambda: str(uuid.uuid4()))


class Line(NamedTuple):
    """What a setting is set to, as text, and the number of that line where it is one of a file."""

    text: str
    number: int | None = None


class Store(Protocol):
    """Where leases are written down, by the session that holds them. Each write is durable when it returns."""

    connection: Connection

    def alone(self) -> AbstractContextManager[None]:
        """Keep every other penstock from changing settings or leases."""

    def now(self) -> datetime:
        """Return the time by the server's clock."""

    def exists(self) -> bool:
        """Whether leases can have been written down."""

    def ensure(self) -> None:
        """Create what leases are written into."""

    def read(self) -> tuple[list[Lease], list[PriorSetting]]:
        """Return all leases with their holders, the oldest first, and what was before them."""

    def write(self, lease: Lease | None, priors: Sequence[PriorSetting]) -> None:
        """Write down a lease, held already, and what settings were in place of what was known; both or neither."""

    def hold(self, lease_id: str) -> None:
        """Hold a lease for as long as the session lasts."""

    def forget(self, lease_ids: Sequence[str]) -> None:
        """Remove leases, and what was before settings that no lease is on any more."""


class Applier(Protocol):
    """Where settings are set: postgresql.auto.conf, or a parameter group. `is_shared`: by several servers."""

    is_shared: ClassVar[bool]

    def identify(self) -> ServerIdentity:
        """Return which server this is."""

    def read_facts(self) -> SettingsFacts:
        """Return what decides about settings, but for what a load is expected to write."""

    def read_lines(self) -> dict[str, Line]:
        """Return what is set there now, by name."""

    def to_text(self, name: str, value: float) -> str:
        """Return a number in pg_settings' unit as it is written there."""

    def refuse_line(self, name: str, text: str) -> None:
        """Raise TargetError for a text that could not be restored."""

    def apply(self, texts: Mapping[str, str | None], priors: Sequence[PriorSetting]) -> None:
        """Set settings in that order, None to take a line out, and wait until the server has all that is set."""

    def describe_foreign(self, lease: Lease, priors: Sequence[PriorSetting]) -> str:
        """Return what a lease of another server means."""


class Leases:
    """Leases in a store on settings that an applier changes. Methods raise TargetError, ServerError, AwsError."""

    def __init__(self, store: Store, applier: Applier) -> None:
        self._store = store
        self._applier = applier

    def look(self, request: LeaseRequest) -> tuple[SettingsDecision, SettingsFacts]:
        """Return what a lease would change, and the facts: settings as they were before the leases on them now."""
        facts = self._applier.read_facts()
        free_bytes = facts.wal_free_bytes if request.wal_free_bytes is None else request.wal_free_bytes
        facts = replace(facts, expected_wal_bytes=request.expected_wal_bytes, wal_free_bytes=free_bytes)
        if _shows_lines(facts) and self._store.exists():
            lines = self._applier.read_lines()
            priors = {prior.name: prior for prior in self._store.read()[1] if _text(lines, prior.name) in prior.ours}
            settings = tuple(_as_before(state, priors.get(state.name)) for state in facts.settings)
            facts = replace(facts, settings=settings)
        return decide(request.profile, facts), facts

    def take(self, request: LeaseRequest) -> tuple[LeaseReport, SettingsDecision]:
        """Change settings under a new lease, which the session holds unless the request says how long it lasts.

        Leases whose holder has gone are restored first. Nothing is written down where there is nothing to change.
        Raises TargetError where no lease may be taken, with the statements that would allow it.
        """
        with self._store.alone():
            decision, _ = self.look(request)
            refuse_obstacle(decision)
            self._store.ensure()
            identity = self._applier.identify()
            self._refuse_foreign(identity)
            cleared = self._clear(identity)
            if cleared.lease_ids:
                decision, _ = self.look(request)
                refuse_obstacle(decision)
            if not decision.leased:
                return LeaseReport(warnings=cleared.warnings), decision
            lease = self._write_down(request, decision, identity)
            try:
                report = self._settle(leaving=())
            except BaseException:
                if not self._store.connection.closed:
                    self._settle(leaving=[lease])
                raise
        results = tuple(result for result in report.results if result.name in lease.wanted)
        return LeaseReport(results=results, warnings=cleared.warnings, lease_ids=(lease.lease_id,)), decision

    def clear(self) -> LeaseReport:
        """Restore leases whose holder has gone, or whose time is up."""
        if not self._store.exists():
            return LeaseReport()
        with self._store.alone():
            return self._clear(self._applier.identify())

    def release(self, lease_id: str) -> LeaseReport:
        """End a lease of this process: settings are restored, or become what other leases ask for.

        Where the server failed over meanwhile, nothing is changed and both are named: the lease stays on record, and
        is not in the report's `lease_ids`.
        """
        with self._store.alone():
            leases, priors = self._store.read()
            mine = [lease for lease in leases if lease.lease_id == lease_id]
            if not mine:
                told = "the lease on settings was already restored by another penstock"
                return LeaseReport(warnings=(told,), lease_ids=(lease_id,))
            if not mine[0].server.is_same(self._applier.identify()):
                return LeaseReport(warnings=(self._applier.describe_foreign(mine[0], priors),))
            return self._settle(leaving=mine)

    def restore(self, *, beginning: str | None = None, forgets: bool = False) -> LeaseReport:
        """End leases that no session holds: those whose holder has gone, and those that stand for a time.

        `beginning` is of the id of the one that is meant; `forgets` ends those of other servers too, which restores
        nothing if their settings are not set here.
        """
        if not self._store.exists():
            return LeaseReport()
        with self._store.alone():
            identity = self._applier.identify()
            leases, priors = self._store.read()
            chosen = _choose(leases, beginning)
            own = [lease for lease in chosen if lease.server.is_same(identity)]
            foreign = [lease for lease in chosen if lease not in own]
            leaving = [lease for lease in own if lease.holder_pid is None]
            warnings = [
                f"lease {lease.lease_id} is held by {lease.client} (backend {lease.holder_pid}): {lease.reason}; it is "
                "restored when that ends"
                for lease in own
                if lease not in leaving
            ]
            if not forgets:
                warnings += [self._applier.describe_foreign(lease, priors) for lease in foreign]
            elif self._applier.is_shared:
                leaving += foreign
            report = self._end(leaving)
            if forgets and not self._applier.is_shared:
                self._store.forget([lease.lease_id for lease in foreign])
                report = replace(report, lease_ids=(*report.lease_ids, *(lease.lease_id for lease in foreign)))
        return replace(report, warnings=tuple(warnings))

    def overview(self) -> SettingsOverview:
        """Return the settings as they are, and the leases on them."""
        return SettingsOverview(
            identity=self._applier.identify(),
            as_of=self._store.now(),
            settings=tuple(read_settings(self._store.connection).values()),
            leases=tuple(self._store.read()[0] if self._store.exists() else ()),
        )

    # ---------------------------------------------------------------- steps

    def _refuse_foreign(self, identity: ServerIdentity) -> None:
        foreign = next((lease for lease in self._store.read()[0] if not lease.server.is_same(identity)), None)
        if foreign is not None and not self._applier.is_shared:
            raise TargetError(
                "no lease on settings: leases of another server are recorded here",
                detail=f"This is {identity}; lease {foreign.lease_id} ({foreign.reason}) was taken on "
                f"{foreign.server}.",
                hint="penstock settings restore shows what that server may have; with --forget it removes the record.",
            )

    def _clear(self, identity: ServerIdentity) -> LeaseReport:
        """Restore what leases of this server have changed whose holder has gone, or whose time is up."""
        now = self._store.now()
        over = [lease for lease in self._store.read()[0] if lease.is_over(now) and lease.server.is_same(identity)]
        told = [f"restored the settings of lease {lease.lease_id} ({lease.reason}), which had ended" for lease in over]
        return replace(self._end(over), warnings=tuple(told))

    def _end(self, leaving: Sequence[Lease]) -> LeaseReport:
        """Restore what leases have changed, where the role may."""
        if not leaving:
            return LeaseReport()
        facts = self._applier.read_facts()
        # What is wanted in a parameter group AWS allows or denies.
        names = [] if facts.group else sorted({name for lease in leaving for name in lease.wanted})
        if names and (missing := missing_grants(facts, names)):
            raise TargetError("the role lacks privileges to restore settings", hint=" ".join(missing))
        return self._settle(leaving=leaving)

    def _write_down(self, request: LeaseRequest, decision: SettingsDecision, identity: ServerIdentity) -> Lease:
        """Commit a new lease, with what the settings are now where no other lease is on them."""
        now = self._store.now()
        lease = Lease(
            lease_id=request.lease_id,
            owner="",
            client=request.client,
            reason=request.reason,
            profile=decision.profile,
            began_at=now,
            until=None if request.lasts_s is None else now + timedelta(seconds=request.lasts_s),
            server=identity,
            wanted={change.name: change.value for change in decision.leased},
        )
        lines = self._applier.read_lines()
        for name in lease.wanted:
            if name in lines and not is_sound(name, lines[name].text):
                self._applier.refuse_line(name, lines[name].text)
        known = {prior.name: prior for prior in self._store.read()[1]}
        priors = [
            _note_prior(change.prior, lines.get(change.name))
            for change in decision.leased
            if change.name not in known or _text(lines, change.name) not in known[change.name].ours
        ]
        if request.lasts_s is None:
            self._store.hold(lease.lease_id)
        self._store.write(lease, priors)
        return lease

    def _settle(self, *, leaving: Sequence[Lease]) -> LeaseReport:
        """Bring each leased setting to what the leases that stay ask for, or back; then remove those that leave."""
        gone = tuple(lease.lease_id for lease in leaving)
        identity = self._applier.identify()
        leases, known = self._store.read()
        here = [lease for lease in leases if self._applier.is_shared or lease.server.is_same(identity)]
        staying = [lease for lease in here if lease.lease_id not in gone]
        priors = [prior for prior in known if any(prior.name in lease.wanted for lease in here)]
        before = read_settings(self._store.connection)
        lines = {name: line.text for name, line in self._applier.read_lines().items()}
        moves = settle(priors, staying, lines, write=self._applier.to_text)
        self._note_ours(priors, moves)
        texts = {move.name: move.text for move in moves if move.kept is None}
        for name, text in texts.items():
            _log.info("changing %s from %s to %s", name, lines.get(name, "no line"), text or "no line")
        # Also if there is none: who died before may have set them, and not waited until they were in force.
        if texts or leaving:
            self._applier.apply(texts, priors)
        if leaving:
            self._store.forget(gone)
        after = read_settings(self._store.connection)
        results = (_result(move, before[move.name], after[move.name], is_leaving=bool(leaving)) for move in moves)
        return LeaseReport(results=tuple(results), lease_ids=gone)

    def _note_ours(self, priors: Sequence[PriorSetting], moves: Sequence[SettingMove]) -> None:
        """Commit the texts that are about to be written, so that they are known again as ours."""
        texts = {move.name: move.text for move in moves if move.kept is None and not move.is_last}
        noted = [
            replace(prior, ours=(*prior.ours, text))
            for prior in priors
            if (text := texts.get(prior.name)) is not None and text not in prior.ours
        ]
        if noted:
            self._store.write(None, noted)


def refuse_obstacle(decision: SettingsDecision) -> None:
    """Raise TargetError where a decision says that no setting can be changed, and something is to be changed."""
    if decision.obstacle is not None and decision.leased:
        names = ", ".join(change.name for change in decision.leased)
        raise TargetError(
            f"no lease on settings: {decision.obstacle}",
            detail=f"It would change {names}.",
            hint=decision.remedy,
        )


def _shows_lines(facts: SettingsFacts) -> bool:
    """Whether what is set can be read; where it cannot, no lease can have been taken by this role."""
    rights = facts.rights
    return facts.group is not None or (rights.reads_files and rights.reads_settings and not facts.is_in_recovery)


def _as_before(state: SettingState, prior: PriorSetting | None) -> SettingState:
    if prior is None:
        return state
    return replace(
        state, value=prior.value, source=prior.source, source_file=prior.source_file, source_line=prior.auto_line
    )


def _text(lines: Mapping[str, Line], name: str) -> str | None:
    return lines[name].text if name in lines else None


def _note_prior(state: SettingState, line: Line | None) -> PriorSetting:
    return PriorSetting(
        name=state.name,
        value=state.value,
        unit=state.unit,
        source=state.source,
        source_file=state.source_file,
        auto_text=None if line is None else line.text,
        auto_line=None if line is None else line.number,
    )


def _result(move: SettingMove, before: SettingState, after: SettingState, *, is_leaving: bool) -> SettingResult:
    note = move.kept
    if note is None and is_leaving and not move.is_last:
        note = "another lease needs it"
    return SettingResult(
        name=move.name, before=show(before.value, before.unit), after=show(after.value, after.unit), note=note
    )


def _choose(leases: Sequence[Lease], beginning: str | None) -> Sequence[Lease]:
    found = [lease for lease in leases if lease.lease_id.startswith((beginning or "").lower())]
    if beginning is not None and not found:
        raise TargetError(f'no lease begins with "{beginning}"', hint="See penstock settings leases.")
    return found
