"""Changes a server's settings under a lease: a hold, and a record of each setting.

Both are committed before the first setting is changed. The settings are restored when the lease ends. If the lease's
session is gone, the next process restores them. A second lease shares the settings if it wants the same values, and is
refused if it wants other values.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from datetime import timedelta

from penstock.changes.context import Context, Store
from penstock.changes.journal import record, restore
from penstock.changes.records import read_time
from penstock.changes.values import SERVER, Change, Hold, lock_of
from penstock.core.catalogue.settings import (
    LeaseReport,
    Profile,
    SettingResult,
    SettingsDecision,
    SettingsFacts,
    SettingState,
    read_settings,
)
from penstock.core.connect.connection import is_usable
from penstock.core.errors import TargetError
from penstock.core.host.process import holding_interrupts
from penstock.core.slotted import slotted
from penstock.core.values.server import ServerIdentity
from penstock.ledger.locks import find_lock_holder, try_lock
from penstock.settings.decide import LEASABLE, decide, is_sound, parse_value, show
from penstock.settings.kinds import SETTING, Applier, SettingsKind


@slotted
class LeaseRequest:
    """What a new lease is to change, how long it lasts, and for which client and reason."""

    profile: Profile
    client: str
    reason: str
    # How long the lease lasts, None until its session ends.
    lasts_s: float | None = None
    expected_wal_bytes: int | None = None
    wal_free_bytes: int | None = None
    # The id of the new lease.
    lease_id: str = field(default_factory=lambda: str(uuid.uuid4()))


@slotted
class SettingsOverview:
    """The present values of the settings in profiles, the leases on them, and the records of what was changed."""

    identity: ServerIdentity
    settings: tuple[SettingState, ...]
    leases: tuple[Hold, ...] = ()
    changes: tuple[Change, ...] = ()


class SettingsLeases:
    """Takes and ends leases. A lease records that settings of a server are changed for a client, and for how long.

    `store` has the records of leases and changes: a ledger, or the tags of a parameter group. `applier` sets the
    settings. Settings that several leases want are restored when the last of these leases ends. Methods raise
    TargetError, ServerError, AwsError.
    """

    def __init__(self, store: Store, applier: Applier, *, notice: Callable[[str], None] = lambda _: None) -> None:
        self._store = store
        self._applier = applier
        self._kind = SettingsKind(applier)
        self._context = Context(store=store, kinds=[self._kind], notice=notice, concerns=self._kind.handles)

    def context(self) -> Context:
        """Return the context by which a repair restores settings. It has the identity of this server."""
        self._context.server = self._applier.identify()
        return self._context

    def look(self, request: LeaseRequest) -> tuple[SettingsDecision, SettingsFacts]:
        """Return what a lease would change, and the facts of the server from which this was decided.

        In the facts, settings have the values that they had before the present leases.
        """
        facts = self._applier.read_facts()
        free_bytes = facts.wal_free_bytes if request.wal_free_bytes is None else request.wal_free_bytes
        facts = replace(facts, expected_wal_bytes=request.expected_wal_bytes, wal_free_bytes=free_bytes)
        if _shows_lines(facts) and self._store.exists():
            lines = self._applier.read_lines()
            changes = self._read_changes()
            ours = {each.name: each for each in changes if lines.get(each.name) == each.record.get("wanted")}
            settings = tuple(_as_before(state, ours.get(state.name)) for state in facts.settings)
            facts = replace(facts, settings=settings, held=_find_held(changes, self._live(self.context())))
        return decide(request.profile, facts), facts

    def hold(self, lease_id: str) -> None:
        """Take the advisory lock of a new lease. The session has it until it ends."""
        is_held = try_lock(self._store.connection, lock_of(lease_id))
        assert is_held, "a new lease's id is unique"

    def take(self, request: LeaseRequest) -> tuple[LeaseReport, SettingsDecision]:
        """Change settings under a new lease.

        Return what was changed, and what was decided about each setting of the profile. The lease ends with the
        session, unless the request says how long it lasts. First, the settings of leases that have ended are restored.
        If there is nothing to change, nothing is recorded. Raises TargetError, with a hint, if no lease can be taken.
        """
        with self._context.lock(SERVER):
            decision, _ = self.look(request)
            refuse_obstacle(decision)
            self._store.ensure()
            context = self.context()
            self._refuse_foreign()
            cleared = self._clear(context)
            if cleared.lease_ids:
                decision, _ = self.look(request)
                refuse_obstacle(decision)
            if not decision.leased:
                return LeaseReport(warnings=cleared.warnings), decision
            hold = self._write_down(context, request, decision)
            try:
                changes = [change for change in self._read_changes() if hold.wants(change)]
                results = self._kind.apply(context, changes)
            except BaseException:
                if is_usable(self._store.connection):
                    with holding_interrupts():
                        self._restore(context, [hold])
                raise
        return LeaseReport(results=tuple(results), warnings=cleared.warnings, lease_ids=(hold.holder_id,)), decision

    def clear(self) -> LeaseReport:
        """Restore the settings of leases that have expired or whose session has ended, and return what was restored."""
        if not self._store.open():
            return LeaseReport()
        with self._context.lock(SERVER):
            return self._clear(self.context())

    def release(self, lease_id: str) -> LeaseReport:
        """End a lease of this process. Restore the settings that no other lease wants, and return their values.

        If the server has failed over since the lease was taken, nothing is changed. The report then has a warning that
        names both servers, and its `lease_ids` are empty; the lease stays recorded.
        """
        with self._context.lock(SERVER):
            mine = [hold for hold in self._store.read_holds(SERVER) if hold.holder_id == lease_id]
            if not mine:
                warning = "the lease on settings was already restored by another penstock"
                return LeaseReport(warnings=(warning,), lease_ids=(lease_id,))
            context = self.context()
            if not mine[0].is_of(self._applier.identify()):
                return LeaseReport(warnings=(self._applier.describe_foreign(mine[0], self._read_changes()),))
            return self._restore(context, mine)

    def restore(self, *, beginning: str | None = None, forgets: bool = False) -> LeaseReport:
        """End the leases that no session holds, and return which settings were restored.

        These are leases that were taken for a time, and leases whose session has ended. If `beginning` is given, only
        the lease whose id begins so is ended. If `forgets` is true, leases of other servers are ended too. Their
        settings are restored only if this server shares the parameter group.
        """
        if not self._store.open():
            return LeaseReport()
        with self._context.lock(SERVER):
            context = self.context()
            chosen = _choose(self._leases(), beginning)
            own = [hold for hold in chosen if hold.is_of(self._applier.identify())]
            foreign = [hold for hold in chosen if hold not in own]
            leaving = [hold for hold in own if hold.pid is None]
            warnings = [
                f"lease {hold.holder_id} is held by {hold.client} (backend {hold.pid}): {hold.reason}; it is restored "
                "when that ends"
                for hold in own
                if hold.pid is not None
            ]
            if not forgets:
                warnings += [self._applier.describe_foreign(hold, self._read_changes()) for hold in foreign]
            elif self._applier.is_shared:
                leaving += foreign
            report = self._restore(context, leaving)
            if forgets and not self._applier.is_shared:
                report = replace(report, lease_ids=(*report.lease_ids, *self._forget(foreign)))
        return replace(report, warnings=tuple(warnings))

    def overview(self) -> SettingsOverview:
        """Return the present values of the settings in profiles, the leases on them, and what was changed."""
        exists = self._store.exists()
        return SettingsOverview(
            identity=self._applier.identify(),
            settings=tuple(read_settings(self._store.connection).values()),
            leases=tuple(self._leases() if exists else ()),
            changes=tuple(self._read_changes() if exists else ()),
        )

    def find_gone(self, lease_ids: Sequence[str]) -> list[str]:
        """Return those of the given ids whose lease is neither recorded nor about to be recorded by a session."""
        holds = self._store.read_holds(SERVER) if self._store.exists() else []
        known = {hold.holder_id for hold in holds if hold.names}
        return [
            lease_id
            for lease_id in lease_ids
            if lease_id not in known and find_lock_holder(self._store.connection, lock_of(lease_id)) is None
        ]

    def describe_foreign(self, lease_ids: Sequence[str]) -> list[str]:
        """Return a message for each of the given leases that was taken on another server."""
        identity = self._applier.identify()
        return [
            f"lease {hold.holder_id} ({hold.reason}) was taken on {hold.server}, and this is {identity}: "
            "see penstock settings restore"
            for hold in (self._leases() if self._store.exists() else [])
            if hold.holder_id in lease_ids and not hold.is_of(identity)
        ]

    # ---------------------------------------------------------------- steps

    def _read_changes(self) -> list[Change]:
        found = self._store.read_changes(SERVER)
        return [change for change in found if change.kind == SETTING and not change.is_copied]

    def _leases(self) -> list[Hold]:
        """Return the holds on settings. A hold without names does not count: a session is still taking it."""
        return [hold for hold in self._store.read_holds(SERVER) if set(hold.names) & set(LEASABLE)]

    def _live(self, context: Context) -> list[Hold]:
        return [hold for hold in self._leases() if not context.is_over(hold)]

    def _refuse_foreign(self) -> None:
        identity = self._applier.identify()
        foreign = next((hold for hold in self._leases() if not hold.is_of(identity)), None)
        if foreign is not None and not self._applier.is_shared:
            raise TargetError(
                "no lease on settings: leases of another server are recorded here",
                detail=f"This is {identity}; lease {foreign.holder_id} ({foreign.reason}) was taken on "
                f"{foreign.server}.",
                hint="penstock settings restore shows what that server may have; with --forget it removes the record.",
            )

    def _clear(self, context: Context) -> LeaseReport:
        over = [hold for hold in self._leases() if context.is_over(hold)]
        warnings = [
            f"restored the settings of lease {hold.holder_id} ({hold.reason}), which had ended" for hold in over
        ]
        return replace(self._restore(context, over), warnings=tuple(warnings))

    def _write_down(self, context: Context, request: LeaseRequest, decision: SettingsDecision) -> Hold:
        """Commit a new lease, with records of the settings that no other lease has changed."""
        connection = self._store.connection
        now = read_time(connection)
        hold = Hold(
            holder_id=request.lease_id,
            target_oid=SERVER,
            lock=lock_of(request.lease_id),
            names=tuple(change.name for change in decision.leased),
            stands=request.lasts_s is not None,
            until=None if request.lasts_s is None else now + timedelta(seconds=request.lasts_s),
            client=request.client,
            reason=request.reason,
            made_at=now,
            server=context.server,
        )
        known = {change.name for change in self._read_changes()}
        changes = [change for change in self._kind.plan(decision, hold.holder_id) if change.name not in known]
        if not hold.stands:
            self.hold(hold.holder_id)
        record(context, hold, changes)
        return hold

    def _restore(self, context: Context, leaving: Sequence[Hold]) -> LeaseReport:
        """Restore the settings that no remaining lease wants, then remove the leases that end."""
        if not leaving:
            return LeaseReport()
        gone = tuple(hold.holder_id for hold in leaving)
        done = restore(replace(context, leaving=gone), [SERVER])
        if done.errors:
            raise done.errors[0]
        names = {name for hold in leaving for name in hold.names} - {result.name for result in done.settings}
        kept = [
            SettingResult(name=name, before=shown, after=shown, note="another lease needs it")
            for name, state in read_settings(self._store.connection).items()
            if name in names and (shown := show(state.value, state.unit))
        ]
        return LeaseReport(results=(*done.settings, *kept), lease_ids=gone)

    def _forget(self, leaving: Sequence[Hold]) -> list[str]:
        """Remove the records of leases and of settings that no other lease wants; restore nothing."""
        gone = [hold.holder_id for hold in leaving]
        staying = [hold for hold in self._store.read_holds(SERVER) if hold.holder_id not in gone]
        free = [change for change in self._read_changes() if not any(hold.wants(change) for hold in staying)]
        self._store.forget(SERVER, free, gone)
        return gone


def refuse_obstacle(decision: SettingsDecision) -> None:
    """Raise TargetError if a decision has settings to change, and something prevents that."""
    if decision.obstacle is not None and decision.leased:
        names = ", ".join(change.name for change in decision.leased)
        raise TargetError(
            f"no lease on settings: {decision.obstacle}",
            detail=f"It would change {names}.",
            hint=decision.remedy,
        )


def _shows_lines(facts: SettingsFacts) -> bool:
    """Return whether the role can read the texts of settings. A role that cannot read them has taken no lease."""
    rights = facts.rights
    return facts.group is not None or (rights.reads_files and rights.reads_settings and not facts.is_in_recovery)


def _as_before(state: SettingState, change: Change | None) -> SettingState:
    if change is None:
        return state
    was = change.record
    return replace(state, value=was["value"], source=was["source"], source_file=was["source_file"], source_line=None)


def _find_held(changes: Sequence[Change], holds: Sequence[Hold]) -> Mapping[str, tuple[float, str]]:
    """Return the settings that leases want changed now: the value of each, and the reason of its lease."""
    return {
        change.name: (parse_value(change.name, change.record["wanted"]), hold.reason)
        for change in changes
        for hold in holds
        if hold.wants(change) and is_sound(change.name, str(change.record.get("wanted")))
    }


def _choose(holds: Sequence[Hold], beginning: str | None) -> Sequence[Hold]:
    found = [hold for hold in holds if hold.holder_id.startswith((beginning or "").lower())]
    if beginning is not None and not found:
        raise TargetError(f'no lease begins with "{beginning}"', hint="See penstock settings leases.")
    return found
