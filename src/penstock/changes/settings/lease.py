"""Leases on a server's settings by ALTER SYSTEM: written down, applied, put back.

At every line: the lease is committed before the first ALTER SYSTEM and removed after the last reload, so that a process
that dies anywhere leaves a lease that no session holds. Whoever comes next finds postgresql.auto.conf's line to be the
prior one, one of the lease's, or somebody else's, and each of them says what to do (moves.py).
"""

from __future__ import annotations

import logging
import uuid
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from penstock.changes.settings.decide import decide, missing_grants
from penstock.changes.settings.moves import settle
from penstock.changes.settings.profiles import LEASABLE
from penstock.changes.settings.values import is_sound, parse_value, show
from penstock.errors import ServerError, TargetError
from penstock.model.server.settings import Lease, LeaseReport, PriorSetting, SettingResult
from penstock.server.facts.settings import (
    alter_system,
    find_unchanged,
    read_facts,
    read_identity,
    read_lines,
    read_settings,
    reload,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from penstock.model.server.settings import (
        Profile,
        ServerIdentity,
        SettingMove,
        SettingsDecision,
        SettingsFacts,
        SettingState,
    )
    from penstock.server.facts.settings import FileLine
    from penstock.server.leases import LeaseStore

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


def look(store: LeaseStore, request: LeaseRequest) -> tuple[SettingsDecision, SettingsFacts]:
    """Return what a lease would change, and the facts; changes nothing. Raises ServerError."""
    facts = _read_facts(store, request)
    return decide(request.profile, facts), facts


def take(store: LeaseStore, request: LeaseRequest) -> tuple[LeaseReport, SettingsDecision]:
    """Change settings under a new lease, which the store's session holds unless the request says how long it lasts.

    Leases whose holder has gone are restored first. Nothing is written down where there is nothing to change. Raises
    TargetError where no lease may be taken, with the statements that would allow it, ServerError.
    """
    first, _ = look(store, request)
    refuse_obstacle(first)
    with store.alone():
        store.ensure()
        identity = read_identity(store.connection)
        _refuse_foreign(store.read()[0], identity)
        cleared = _clear_away(store, identity)
        decision = decide(request.profile, _read_facts(store, request))
        refuse_obstacle(decision)
        if not decision.leased:
            return LeaseReport(warnings=cleared.warnings), decision
        lease = _write_down(store, request, decision, identity)
        try:
            report = _settle(store, leaving=())
        except BaseException:
            if not store.connection.closed:
                _settle(store, leaving=[lease])
            raise
    named = {change.name for change in decision.leased}
    results = tuple(result for result in report.results if result.name in named)
    return LeaseReport(results=results, warnings=cleared.warnings, lease_ids=(lease.lease_id,)), decision


def clear(store: LeaseStore) -> LeaseReport:
    """Restore leases whose holder has gone, or whose time is up. Raises TargetError, ServerError."""
    if not store.exists():
        return LeaseReport()
    with store.alone():
        return _clear_away(store, read_identity(store.connection))


def release(store: LeaseStore, lease_id: str) -> LeaseReport:
    """End a lease of this process: settings go back, or to what other leases ask for.

    Where the server failed over meanwhile, nothing is changed and both are named: the lease stays on record, and is
    not in the report's `lease_ids`. Raises ServerError.
    """
    with store.alone():
        mine = [lease for lease in store.read()[0] if lease.lease_id == lease_id]
        if not mine:
            told = "the lease on settings was already restored by another penstock"
            return LeaseReport(warnings=(told,), lease_ids=(lease_id,))
        identity = read_identity(store.connection)
        if not mine[0].server.is_same(identity):
            return LeaseReport(warnings=(_describe_foreign(store, mine[0], identity),))
        return replace(_settle(store, leaving=mine), lease_ids=(lease_id,))


def restore(store: LeaseStore, *, beginning: str | None = None, forgets: bool = False) -> LeaseReport:
    """End leases that no session holds: those whose holder has gone, and those that stand for a time.

    `beginning` is of the id of the one that is meant; `forgets` removes the record of leases that another server has
    made, and restores nothing of them. Raises TargetError, ServerError.
    """
    if not store.exists():
        return LeaseReport()
    with store.alone():
        identity = read_identity(store.connection)
        leases = _choose(store.read()[0], beginning)
        foreign = [lease for lease in leases if not lease.server.is_same(identity)]
        own = [lease for lease in leases if lease.server.is_same(identity)]
        held = [lease for lease in own if lease.holder_pid is not None]
        leaving = [lease for lease in own if lease.holder_pid is None]
        warnings = [
            f"lease {lease.lease_id} is held by {lease.client} (backend {lease.holder_pid}): {lease.reason}; it is "
            "restored when that ends"
            for lease in held
        ]
        report = LeaseReport()
        if leaving:
            refuse_missing_rights(store, leaving)
            report = _settle(store, leaving=leaving)
        if forgets:
            store.forget([lease.lease_id for lease in foreign])
        else:
            warnings += [_describe_foreign(store, lease, identity) for lease in foreign]
    ids = tuple(lease.lease_id for lease in [*leaving, *(foreign if forgets else [])])
    return replace(report, warnings=(*report.warnings, *warnings), lease_ids=ids)


def refuse_obstacle(decision: SettingsDecision) -> None:
    """Raise TargetError where a decision says that no setting can be changed, and something is to be changed."""
    if decision.obstacle is not None and decision.leased:
        names = ", ".join(change.name for change in decision.leased)
        raise TargetError(
            f"no lease on settings: {decision.obstacle}",
            detail=f"It would change {names}.",
            hint=decision.remedy,
        )


def refuse_missing_rights(store: LeaseStore, leases: Sequence[Lease]) -> None:
    """Raise TargetError where the role may not put the settings of leases back."""
    names = sorted({name for lease in leases for name in lease.wanted})
    missing = missing_grants(read_facts(store.connection), names)
    if missing:
        raise TargetError("the role lacks privileges to restore settings", hint=" ".join(missing))


# ---------------------------------------------------------------- steps


def _read_facts(store: LeaseStore, request: LeaseRequest) -> SettingsFacts:
    """Return the facts, settings as they were before the leases that are on them now."""
    facts = read_facts(store.connection)
    facts = replace(facts, expected_wal_bytes=request.expected_wal_bytes, wal_free_bytes=request.wal_free_bytes)
    if not facts.rights.reads_files or not facts.rights.reads_settings or facts.is_in_recovery or not store.exists():
        return facts
    lines = read_lines(store.connection)
    under_lease = {prior.name: prior for prior in store.read()[1] if _text(lines, prior.name) in prior.ours}
    return replace(facts, settings=tuple(_as_before(state, under_lease.get(state.name)) for state in facts.settings))


def _as_before(state: SettingState, prior: PriorSetting | None) -> SettingState:
    if prior is None:
        return state
    return replace(
        state, value=prior.value, source=prior.source, source_file=prior.source_file, source_line=prior.auto_line
    )


def _text(lines: Mapping[str, FileLine], name: str) -> str | None:
    return lines[name].text if name in lines else None


def _clear_away(store: LeaseStore, identity: ServerIdentity) -> LeaseReport:
    """Put back what leases have changed whose holder has gone, or whose time is up."""
    now = store.now()
    over = [lease for lease in store.read()[0] if lease.is_over(now) and lease.server.is_same(identity)]
    if not over:
        return LeaseReport()
    refuse_missing_rights(store, over)
    report = _settle(store, leaving=over)
    told = tuple(f"restored the settings of lease {lease.lease_id} ({lease.reason}), which had ended" for lease in over)
    ids = tuple(lease.lease_id for lease in over)
    return replace(report, warnings=(*told, *report.warnings), lease_ids=ids)


def _write_down(
    store: LeaseStore, request: LeaseRequest, decision: SettingsDecision, identity: ServerIdentity
) -> Lease:
    """Commit a new lease, with what the settings are now where no other lease is on them."""
    lease = Lease(
        lease_id=request.lease_id,
        owner="",
        client=request.client,
        reason=request.reason,
        profile=decision.profile,
        began_at=store.now(),
        until=None,
        server=identity,
        wanted={change.name: change.value for change in decision.leased},
    )
    lines = read_lines(store.connection)
    known = {prior.name: prior for prior in store.read()[1]}
    for change in decision.leased:
        text = _text(lines, change.name)
        if text is not None and not is_sound(change.name, text):
            raise TargetError(
                f"no lease on settings: {change.name} could not be restored",
                detail=f"Its line in postgresql.auto.conf is '{text}', and only plain numbers can be restored.",
                hint=f"Write it as a number with a unit: ALTER SYSTEM SET {change.name}.",
            )
    priors = [
        PriorSetting(
            name=change.name,
            value=change.prior.value,
            unit=change.prior.unit,
            source=change.prior.source,
            source_file=change.prior.source_file,
            auto_text=_text(lines, change.name),
            auto_line=lines[change.name].line if change.name in lines else None,
        )
        for change in decision.leased
        if change.name not in known or _text(lines, change.name) not in known[change.name].ours
    ]
    if request.lasts_s is None:
        store.hold(lease.lease_id)
    with store.writing():
        store.write(lease, lasts_s=request.lasts_s)
        store.write_priors(priors)
    return lease


def _settle(store: LeaseStore, *, leaving: Sequence[Lease]) -> LeaseReport:
    """Bring each leased setting to what the leases that stay ask for, or back; then remove those that leave."""
    connection = store.connection
    gone = {lease.lease_id for lease in leaving}
    identity = read_identity(connection)
    leases, known = store.read()
    own = [lease for lease in leases if lease.server.is_same(identity)]
    staying = [lease for lease in own if lease.lease_id not in gone]
    priors = [prior for prior in known if any(prior.name in lease.wanted for lease in own)]
    before = read_settings(connection)
    lines = {name: line.text for name, line in read_lines(connection).items() if line.text is not None}
    moves = settle(priors, staying, lines)
    _note_ours(store, priors, moves)
    made = [move for move in moves if move.kept is None]
    for move in made:
        _log.info("changing %s from %s to %s", move.name, lines.get(move.name, "no line"), move.text or "no line")
        alter_system(connection, move.name, move.text)
    if made or leaving:
        reload(connection)
    unchanged = find_unchanged(connection, _expect(made))
    if unchanged:
        raise ServerError(
            f"{unchanged[0].name} is still {show(unchanged[0].value, unchanged[0].unit)} after a reload",
            detail=f"Its value comes from: {unchanged[0].source}.",
            hint="Another source overrides postgresql.auto.conf; run penstock settings restore.",
        )
    if leaving:
        store.forget(sorted(gone))
    after = read_settings(connection)
    return LeaseReport(
        results=tuple(_result(move, before[move.name], after[move.name], is_leaving=bool(leaving)) for move in moves)
    )


def _expect(moves: Sequence[SettingMove]) -> dict[str, float]:
    """Return the numbers that settings should have now, by name; a line that was removed leaves that to the files."""
    return {move.name: parse_value(move.name, move.text) for move in moves if move.text is not None}


def _note_ours(store: LeaseStore, priors: Sequence[PriorSetting], moves: Sequence[SettingMove]) -> None:
    """Commit the texts that are about to be written, so that they are known again as ours."""
    texts = {move.name: move.text for move in moves if move.kept is None and not move.is_last}
    noted = [
        replace(prior, ours=(*prior.ours, text))
        for prior in priors
        if (text := texts.get(prior.name)) is not None and text not in prior.ours
    ]
    if noted:
        with store.writing():
            store.write_priors(noted)


def _result(move: SettingMove, before: SettingState, after: SettingState, *, is_leaving: bool) -> SettingResult:
    note = move.kept
    if note is None and is_leaving and not move.is_last:
        note = "another lease needs it"
    return SettingResult(
        name=move.name, before=show(before.value, before.unit), after=show(after.value, after.unit), note=note
    )


# ---------------------------------------------------------------- other servers' leases, and ids


def _refuse_foreign(leases: Sequence[Lease], identity: ServerIdentity) -> None:
    foreign = next((lease for lease in leases if not lease.server.is_same(identity)), None)
    if foreign is not None:
        raise TargetError(
            "no lease on settings: leases of another server are recorded here",
            detail=f"This is {identity}; lease {foreign.lease_id} ({foreign.reason}) was taken on {foreign.server}.",
            hint="penstock settings restore shows what that server may have; with --forget it removes the record.",
        )


def _describe_foreign(store: LeaseStore, lease: Lease, identity: ServerIdentity) -> str:
    """Return what a lease of another server means for both."""
    texts = {prior.name: prior.auto_text for prior in store.read()[1]}
    undo = [
        f"ALTER SYSTEM RESET {name};" if text is None else f"ALTER SYSTEM SET {name} = '{text}';"
        # Who reads this may run it: no more is said than a lease would do.
        for name, text in ((name, texts.get(name)) for name in lease.wanted if name in LEASABLE)
        if text is None or is_sound(name, text)
    ]
    return (
        f"lease {lease.lease_id} ({lease.reason}) was taken on {lease.server}, and this is {identity}: nothing was "
        f"changed. If a server still has its values, restore them there: {' '.join(undo)} "
        "SELECT pg_reload_conf(); penstock settings restore --forget then removes the record."
    )


def _choose(leases: Sequence[Lease], beginning: str | None) -> list[Lease]:
    if beginning is None:
        return list(leases)
    found = [lease for lease in leases if lease.lease_id.startswith(beginning.lower())]
    if not found:
        raise TargetError(f'no lease begins with "{beginning}"', hint="See penstock settings leases.")
    return found
