"""Leases on the settings of a server of Amazon RDS, by its parameter group; the lease is tags of the group.

As with ALTER SYSTEM the lease is there before the first change. Its holder is alive while its session holds an advisory
lock at the instance. A group that several instances share is changed by whoever says so; each sees the others' tags.
"""

from __future__ import annotations

import logging
import time
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Protocol

from penstock.changes.settings.decide import decide
from penstock.changes.settings.group_tags import lease_keys, lease_tags, prior_key, prior_tag, read_tags, write_number
from penstock.changes.settings.lease import refuse_obstacle
from penstock.changes.settings.moves import settle
from penstock.changes.settings.values import is_sound, parse_value, show
from penstock.errors import AwsError, ServerError, TargetError
from penstock.model.server.settings import (
    Lease,
    LeaseReport,
    PriorSetting,
    ServerIdentity,
    SettingResult,
    SettingsOverview,
)
from penstock.server.facts.settings import find_unchanged, read_facts, read_settings
from penstock.server.leases import LEASE_DATABASE, LeaseStore

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from penstock.changes.settings.lease import LeaseRequest
    from penstock.model.server.settings import AttachedGroup, SettingMove, SettingsDecision, SettingsFacts
    from penstock.server.connect.connection import Connection, ConnectionFactory

_log = logging.getLogger(__name__)

# RDS applies dynamic parameters within seconds, some minutes at worst.
_APPLY_TIMEOUT_S = 300.0
_APPLY_LOOK_S = 2.0

# An account's calls are throttled for seconds. What is not put back at the end of a load waits for somebody to do it.
_BUSY_TIMEOUT_S = 60.0


class ParameterGroups(Protocol):
    """What AWS tells of one server's parameter group, and does to it; methods raise AwsError."""

    def describe(self, *, is_brief: bool = False) -> AttachedGroup:
        """Return the group that is attached now; `is_brief`: with no more than its state."""

    def read_values(self, group: AttachedGroup) -> dict[str, str]:
        """Return the parameters that are set in the group, those at their defaults left out."""

    def write(self, group: AttachedGroup, values: Mapping[str, str | None]) -> None:
        """Set dynamic parameters, None to their defaults, at once."""

    def read_tags(self, group: AttachedGroup) -> dict[str, str]:
        """Return the group's tags."""

    def write_tags(self, group: AttachedGroup, tags: Mapping[str, str]) -> None:
        """Add tags, or give them another value."""

    def remove_tags(self, group: AttachedGroup, keys: Sequence[str]) -> None:
        """Remove tags."""

    def close(self) -> None:
        """Let go of connections."""


class GroupSettings:
    """Changes settings in the parameter group of a server of Amazon RDS; see SettingsBackend."""

    def __init__(
        self,
        connect: ConnectionFactory,
        groups: ParameterGroups,
        *,
        may_share_group: bool = False,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._connect = connect.in_database(LEASE_DATABASE)
        self._groups = groups
        self._may_share_group = may_share_group
        self._clock = clock
        self._sleep = sleep
        self._session: Connection | None = None
        self._changed: AttachedGroup | None = None

    def look(self, request: LeaseRequest) -> tuple[SettingsDecision, SettingsFacts]:
        """Return what a lease would change, and the facts; changes nothing."""
        facts = self._read_facts(self._store(), request, self._groups.describe())
        return decide(request.profile, facts), facts

    def take(self, request: LeaseRequest) -> tuple[LeaseReport, SettingsDecision]:
        """Change parameters under a new lease; those whose holder has gone are restored first."""
        store = self._store()
        self._connect.refuse_pooler("change settings")
        with store.alone():
            group = self._groups.describe()
            cleared = self._clear_away(store, group)
            decision = decide(request.profile, self._read_facts(store, request, group))
            refuse_obstacle(decision)
            if not decision.leased:
                return LeaseReport(warnings=cleared.warnings), decision
            lease = self._write_down(store, group, request, decision)
            self._changed = group
            try:
                report = self._settle(store, group, leaving=())
            except BaseException:
                self._settle(store, group, leaving=[lease])
                raise
        named = {change.name for change in decision.leased}
        results = tuple(result for result in report.results if result.name in named)
        return LeaseReport(results=results, warnings=cleared.warnings, lease_ids=(lease.lease_id,)), decision

    def clear(self) -> LeaseReport:
        """Restore leases whose holder has gone, or whose time is up."""
        store = self._store()
        with store.alone():
            return self._clear_away(store, self._groups.describe())

    def release(self, lease_id: str) -> LeaseReport:
        """End a lease of this process; a session that was lost is replaced once, and AWS that is busy waited for."""
        began_s, has_lost_session = self._clock(), False
        while True:
            try:
                return self._release(lease_id)
            except ServerError:
                if has_lost_session:
                    raise
                has_lost_session = True
                self._close_session()
            except AwsError as error:
                if not error.is_transient or self._clock() - began_s > _BUSY_TIMEOUT_S:
                    raise
                _log.info("%s; trying again", error.message)
                self._sleep(_APPLY_LOOK_S)

    def _release(self, lease_id: str) -> LeaseReport:
        store = self._store()
        with store.alone():
            attached = self._groups.describe()
            group = self._changed or attached
            mine = [lease for lease in self._read(store, group)[0] if lease.lease_id == lease_id]
            if not mine:
                told = "the lease on settings was already restored by another penstock"
                return LeaseReport(warnings=(told,), lease_ids=(lease_id,))
            is_attached = group.name == attached.name
            report = self._settle(store, group, leaving=mine, is_attached=is_attached)
        told = f"parameter group {attached.name} is attached now: the lease on {group.name} was ended there"
        return replace(report, warnings=() if is_attached else (told,), lease_ids=(lease_id,))

    def restore(self, *, beginning: str | None = None, forgets: bool = False) -> LeaseReport:
        """End leases of this instance that no session holds; `forgets`: those of other instances in the group too."""
        store = self._store()
        with store.alone():
            group = self._groups.describe()
            leases = [one for one in self._read(store, group)[0] if one.lease_id.startswith((beginning or "").lower())]
            if beginning is not None and not leases:
                raise TargetError(f'no lease begins with "{beginning}"', hint="See penstock settings leases.")
            own = [lease for lease in leases if lease.server.resource_id == group.resource_id]
            others = [lease for lease in leases if lease not in own]
            leaving = [lease for lease in own if lease.holder_pid is None] + (others if forgets else [])
            warnings = [f"lease {lease.lease_id} is held by {lease.client}" for lease in own if lease not in leaving]
            if not forgets:
                warnings += [
                    f"lease {lease.lease_id} in group {group.name} was taken on {lease.server.resource_id}, this is "
                    f"{group.resource_id}: restore it there, or with --forget here"
                    for lease in others
                ]
            report = self._settle(store, group, leaving=leaving) if leaving else LeaseReport()
        ids = tuple(lease.lease_id for lease in leaving)
        return replace(report, warnings=(*report.warnings, *warnings), lease_ids=ids)

    def overview(self) -> SettingsOverview:
        """Return the settings as they are, and the leases on them."""
        store = self._store()
        group = self._groups.describe()
        return SettingsOverview(
            identity=_identify(group),
            as_of=store.now(),
            settings=tuple(read_settings(store.connection).values()),
            leases=tuple(self._read(store, group)[0]),
        )

    def refuse_blindness(self) -> None:
        """Refuse nothing: the group that is attached has them."""

    def close(self) -> None:
        """Let go of sessions."""
        self._close_session()
        self._connect.close()
        self._groups.close()

    # ---------------------------------------------------------------- steps

    def _store(self) -> LeaseStore:
        if self._session is None or self._session.closed:
            self._session = self._connect.connect(label="settings")
        return LeaseStore(self._session)

    def _close_session(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            session.close()

    def _read(self, store: LeaseStore, group: AttachedGroup) -> tuple[list[Lease], list[PriorSetting]]:
        """Return the leases of the group with their holders, and what parameters were."""
        leases, priors = read_tags(self._groups.read_tags(group))
        return [replace(lease, holder_pid=store.find_holder(lease.lease_id)) for lease in leases], priors

    def _read_facts(self, store: LeaseStore, request: LeaseRequest, group: AttachedGroup) -> SettingsFacts:
        """Return the facts, settings as they were before the leases that are on them now."""
        facts = read_facts(store.connection)
        free_bytes = group.free_bytes if request.wal_free_bytes is None else request.wal_free_bytes
        facts = replace(
            facts,
            expected_wal_bytes=request.expected_wal_bytes,
            wal_free_bytes=free_bytes,
            group=group,
            may_share_group=self._may_share_group,
        )
        if group.is_default:
            return facts
        values = self._groups.read_values(group)
        under_lease = {
            prior.name: prior for prior in self._read(store, group)[1] if values.get(prior.name) in prior.ours
        }
        settings = (
            state if state.name not in under_lease else replace(state, value=under_lease[state.name].value)
            for state in facts.settings
        )
        return replace(facts, settings=tuple(settings))

    def _clear_away(self, store: LeaseStore, group: AttachedGroup) -> LeaseReport:
        """Put back what leases of this instance have changed whose holder has gone, or whose time is up."""
        if group.is_default:
            return LeaseReport()
        now = store.now()
        leases = self._read(store, group)[0]
        over = [lease for lease in leases if lease.is_over(now) and lease.server.resource_id == group.resource_id]
        if not over:
            return LeaseReport()
        told = tuple(
            f"restored the settings of lease {lease.lease_id} ({lease.reason}), which had ended" for lease in over
        )
        ids = tuple(lease.lease_id for lease in over)
        return replace(self._settle(store, group, leaving=over), warnings=told, lease_ids=ids)

    def _write_down(
        self, store: LeaseStore, group: AttachedGroup, request: LeaseRequest, decision: SettingsDecision
    ) -> Lease:
        """Tag the group with a new lease, and with what parameters are now where no other lease is on them."""
        values = self._groups.read_values(group)
        formula = next((one for one in decision.leased if not is_sound(one.name, values.get(one.name, "0"))), None)
        if formula is not None:
            raise TargetError(
                f"no lease on settings: {formula.name} is a formula in parameter group {group.name}",
                detail=f"It is {values[formula.name]}.",
                hint="Set it to a number there.",
            )
        now = store.now()
        lease = Lease(
            lease_id=request.lease_id,
            owner="",
            client=request.client,
            reason=request.reason,
            profile=decision.profile,
            began_at=now,
            until=None if request.lasts_s is None else now + timedelta(seconds=request.lasts_s),
            server=_identify(group),
            wanted={change.name: change.value for change in decision.leased},
        )
        known = {prior.name: prior for prior in self._read(store, group)[1]}
        tags = lease_tags(lease)
        for change in decision.leased:
            if change.name not in known or values.get(change.name) not in known[change.name].ours:
                tags |= prior_tag(
                    PriorSetting(
                        name=change.name,
                        value=change.prior.value,
                        unit=change.prior.unit,
                        source="parameter group",
                        source_file=None,
                        auto_text=values.get(change.name),
                        auto_line=None,
                    )
                )
        if request.lasts_s is None:
            store.hold(lease.lease_id)
        self._groups.write_tags(group, tags)
        return lease

    def _settle(
        self, store: LeaseStore, group: AttachedGroup, *, leaving: Sequence[Lease], is_attached: bool = True
    ) -> LeaseReport:
        """Bring each leased parameter to what the leases that stay ask for, or back; then remove those that leave.

        What becomes of a group that is not attached any more does not show in the server, and is not waited for.
        """
        gone = {lease.lease_id for lease in leaving}
        leases, priors = self._read(store, group)
        staying = [lease for lease in leases if lease.lease_id not in gone]
        before = read_settings(store.connection)
        moves = settle(priors, staying, self._groups.read_values(group), write=write_number)
        made = {move.name: move.text for move in moves if move.kept is None}
        self._note_ours(group, priors, moves)
        if made:
            for name, text in made.items():
                _log.info("changing %s in parameter group %s to %s", name, group.name, text or "its default")
            self._groups.write(group, made)
            if is_attached:
                self._await(store, group, _expect(made, priors))
        if leaving:
            keys = [key for lease_id in sorted(gone) for key in lease_keys(lease_id)]
            self._groups.remove_tags(group, keys + [prior_key(move.name) for move in moves if move.is_last])
        after = read_settings(store.connection)
        results = [
            SettingResult(
                name=move.name,
                before=show(before[move.name].value, before[move.name].unit),
                after=show(after[move.name].value, after[move.name].unit),
                note=move.kept or ("another lease needs it" if leaving and not move.is_last else None),
            )
            for move in moves
        ]
        return LeaseReport(results=tuple(results))

    def _note_ours(self, group: AttachedGroup, priors: Sequence[PriorSetting], moves: Sequence[SettingMove]) -> None:
        """Tag the group with the values that are about to be written, so that they are known again as ours."""
        texts = {move.name: move.text for move in moves if move.kept is None and not move.is_last}
        tags: dict[str, str] = {}
        for prior in priors:
            text = texts.get(prior.name)
            if text is not None and text not in prior.ours:
                tags |= prior_tag(replace(prior, ours=(*prior.ours, text)))
        if tags:
            self._groups.write_tags(group, tags)

    def _await(self, store: LeaseStore, group: AttachedGroup, wanted: Mapping[str, float]) -> None:
        """Wait until RDS has applied the group, and SQL tells the values. Raises ServerError where it does not."""
        began_s = self._clock()
        while True:
            state = self._groups.describe(is_brief=True).apply_state
            unchanged = find_unchanged(store.connection, wanted)
            # What waits for a reboot is somebody else's: ours are dynamic.
            if state in ("in-sync", "pending-reboot", None) and not unchanged:
                return
            if self._clock() - began_s > _APPLY_TIMEOUT_S or state == "failed-to-apply":
                names: Collection[str] = [one.name for one in unchanged] or list(wanted)
                raise ServerError(
                    f"parameter group {group.name} was changed, and {', '.join(names)} has an unexpected value",
                    detail=f"The group is {state}.",
                    hint="See the instance's events; run penstock settings restore to restore the group.",
                )
            self._sleep(_APPLY_LOOK_S)


def _identify(group: AttachedGroup) -> ServerIdentity:
    return ServerIdentity(
        system_identifier=0, timeline=0, address=group.identifier, port=None, resource_id=group.resource_id
    )


def _expect(made: Mapping[str, str | None], priors: Sequence[PriorSetting]) -> dict[str, float]:
    """Return the numbers that settings should have; a parameter at its default goes back to what it was."""
    values = {prior.name: prior.value for prior in priors}
    return {name: parse_value(name, values[name] if text is None else text) for name, text in made.items()}
