"""Ends leases on the server's settings whose load was killed; the ledger notes them, and a repair looks for them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.errors import PenstockError
from penstock.model.load.shape import RepairStep
from penstock.server.ledger.lease_notes import delete_lease_notes, find_settled, read_lease_notes
from penstock.server.ledger.schema import has_ledger

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.changes.settings.backend import SettingsBackend
    from penstock.loading.context import LoadTools
    from penstock.model.load.shape import RepairAction
    from penstock.model.server.settings import Lease, LeaseReport, SettingsOverview
    from penstock.server.connect.connection import Connection


def end_left_leases(tools: LoadTools, connection: Connection, lease_ids: Sequence[str]) -> None:
    """Restore settings under leases that the ledger notes and nobody holds; what cannot be is reported and stays noted.

    `connection` is to the ledger's database. Raises ServerError where that cannot be asked.
    """
    settled = find_settled(connection, lease_ids)
    if not settled or tools.open_settings is None:
        return
    try:
        backend = tools.open_settings()
        try:
            end_leases(tools, connection, backend, settled)
        finally:
            backend.close()
    except PenstockError as error:
        tools.warnings.warn(
            "settings",
            "a killed load may have left the server's settings changed, and they were not restored "
            f"({error.message}): run penstock settings restore",
        )


def end_leases(tools: LoadTools, connection: Connection, backend: SettingsBackend, noted: Sequence[str]) -> LeaseReport:
    """Restore settings under leases that nobody holds, and forget those of the notes that are of no lease any more.

    Raises PenstockError.
    """
    report = backend.clear()
    for warning in report.warnings:
        tools.warnings.warn("settings", warning)
    overview = backend.overview()
    standing = {lease.lease_id: lease for lease in overview.leases}
    if done_with := [lease_id for lease_id in noted if lease_id not in standing]:
        backend.refuse_blindness()
        delete_lease_notes(connection, tools.ledger.schema, done_with)
    for lease_id in noted:
        if lease_id in standing and not standing[lease_id].server.is_same(overview.identity):
            lease = standing[lease_id]
            tools.warnings.warn(
                "settings",
                f"lease {lease_id} ({lease.reason}) was taken on {lease.server}, and this is {overview.identity}: "
                "see penstock settings restore",
            )
    return report


def find_noted(tools: LoadTools, connection: Connection) -> list[str]:
    """Return the leases that the ledger notes and nobody is just taking. Raises ServerError, TargetError."""
    schema = tools.ledger.schema
    if not has_ledger(connection, schema):
        return []
    return find_settled(connection, read_lease_notes(connection, schema))


def plan_leases(overview: SettingsOverview) -> list[RepairStep]:
    """Return what a repair does about each lease on the server's settings."""
    return [_plan_lease(lease, overview) for lease in overview.leases]


def _plan_lease(lease: Lease, overview: SettingsOverview) -> RepairStep:
    action, reason = _decide_lease(lease, overview)
    return RepairStep(
        table="(the server)",
        kind="settings",
        name=", ".join(lease.wanted),
        owner=lease.owner,
        action=action,
        reason=reason,
    )


def _decide_lease(lease: Lease, overview: SettingsOverview) -> tuple[RepairAction, str]:
    if not lease.server.is_same(overview.identity):
        return "refuse", f"{lease.server} had them changed: run penstock settings restore"
    if lease.holder_pid is not None:
        return "wait", f"{lease.reason} is running (backend {lease.holder_pid}), and restores them"
    if not lease.is_over(overview.as_of):
        return "wait", f"its lease lasts until {lease.until:%Y-%m-%d %H:%M:%S} or penstock settings restore"
    return "restore", f"the session that held the lease of {lease.reason} has ended"
