"""Changes the server's settings for the time of a load, under a lease.

The settings are restored when the load ends or fails. If the process is killed, the next load finds the lease in the
ledger.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.changes.records import TableStore
from penstock.changes.values import SERVER, Hold, lock_of
from penstock.core.catalogue.catalog import read_table_storage
from penstock.core.catalogue.settings import LeasedSetting, LeaseReport, SettingResult
from penstock.core.errors import PenstockError
from penstock.core.host.disks import measure_disk
from penstock.core.host.machine import client_name
from penstock.core.host.process import holding_interrupts
from penstock.loading.context import LoadTools
from penstock.loading.plan.settings import LoadSettings
from penstock.loading.plan.space import estimate_wal
from penstock.loading.values.objects import PlannedObject
from penstock.loading.values.plan import LoadPlan, total_size
from penstock.settings.decide import BULK_LOAD, choose_auto, find_profile, is_too_small
from penstock.settings.lease import LeaseRequest, refuse_obstacle

if TYPE_CHECKING:
    from penstock.settings.backend import SettingsBackend

_log = logging.getLogger(__name__)


class LoadLease:
    """Changes the server's settings for one load under a lease, and restores them when the lease is released.

    `choice` is the value of --settings: "auto" or a profile's name. If the user named a profile and its settings cannot
    be changed, the load does not begin. If `is_local` is true, the server's directories are on this machine. The ledger
    has a note of the lease, so that the next load finds it, and restores the settings, if this load is killed.
    """

    def __init__(
        self,
        plan: LoadPlan,
        tools: LoadTools,
        *,
        choice: str,
        is_local: bool,
    ) -> None:
        self._plan = plan
        self._tools = tools
        self._choice = choice
        self._is_local = is_local
        self._backend: SettingsBackend | None = None
        self._taken: LeaseReport | None = None
        self._is_again = False
        self._settings: tuple[LeasedSetting, ...] = ()
        self._works: Sequence[PlannedObject] = ()

    def look(self, works: Sequence[PlannedObject]) -> LoadSettings:
        """Return which settings the load would change, or why none. Change nothing. `works` are the objects to load.

        Raises PenstockError if the user named a profile and the settings cannot be read. With `auto`, the error is the
        reason in the result.
        """
        self._works = works
        backend: SettingsBackend | None = None
        try:
            if self._is_too_small():
                return LoadSettings(choice=self._choice, reason="the load is too small to gain from it")
            backend = self._open_backend()
            decision, facts = backend.leases().look(self._request())
        except PenstockError as error:
            if self._choice != "auto":
                raise
            return LoadSettings(choice=self._choice, reason=error.message)
        finally:
            if backend is not None:
                backend.close()
        reason = choose_auto(decision, facts) if self._choice == "auto" else decision.obstacle
        if not decision.leased:
            reason = reason or "there is nothing to change"
        return LoadSettings(choice=self._choice, decision=decision, reason=reason)

    @property
    def lease_id(self) -> str | None:
        """Return the id of the lease under which the server's settings are changed now, or None."""
        return None if self._taken is None else self._taken.lease_ids[0]

    @property
    def settings(self) -> tuple[LeasedSetting, ...]:
        """Return the values of each setting before, during and after the lease. Empty until the lease is released."""
        return self._settings

    def take(self, works: Sequence[PlannedObject]) -> None:
        """Take a lease and change the settings, if some are to be changed. `works` are the objects to load.

        Raises PenstockError if the user named a profile. With `auto`, an error becomes a warning. It also becomes a
        warning if this object has released a lease before. Then a failover has lost the end of the load, and the new
        primary gets the missing rows without a lease.
        """
        self._works = works
        if self._is_too_small():
            return
        try:
            self._tools.patiently(self._take, retry_for_s=self._retry_for_s)
        except PenstockError as error:
            self._end()
            if self._choice != "auto" and not self._settings:
                raise
            self._tools.warnings.warn("settings", f"the server's settings are not changed: {error.message}")
        except BaseException:
            self._end()
            raise

    @property
    def _retry_for_s(self) -> float:
        return self._plan.job.rules.retry_for

    def _take(self) -> None:
        """Take a lease, unless nothing is to be changed. A retry after an error takes a lease with another id."""
        self._is_again = self._is_again or self._backend is not None
        self._taken = None
        self._close()
        self._backend = self._open_backend()
        request = self._request()
        decision, facts = self._backend.leases().look(request)
        if self._choice == "auto" and (reason := choose_auto(decision, facts)) is not None:
            if decision.obstacle is not None:
                self._tools.notice(f"the server's settings are not changed: {reason}")
            report = LeaseReport() if decision.obstacle is not None else self._backend.leases().clear()
        else:
            refuse_obstacle(decision)
            report = self._take_noted(self._backend, request)
        for warning in report.warnings:
            self._tools.warnings.warn("settings", warning)

    def _take_noted(self, backend: SettingsBackend, request: LeaseRequest) -> LeaseReport:
        """Write a note of the lease to the ledger, then take the lease."""
        self._tools.connect.refuse_unwritable("load")
        ledger = self._tools.ledger
        # Take the lease's lock before the note is written: if no session has the lock, the lease counts as ended.
        backend.leases().hold(request.lease_id)
        with self._tools.connect.borrow() as connection:
            ledger.ensure(connection, is_publishing_allowed=self._tools.is_publishing_allowed)
            store = TableStore(connection=connection, schema=ledger.schema)
            lease_id = request.lease_id
            note = Hold(
                holder_id=lease_id,
                target_oid=SERVER,
                lock=lock_of(lease_id),
                client=request.client,
                reason=request.reason,
            )
            store.write(note, [])
            report, _ = backend.take(request)
            if report.lease_ids:
                self._taken = report
            else:
                store.forget(SERVER, [], [lease_id])
        return report

    def release(self, *, is_patient: bool) -> None:
        """Restore the settings if they are changed. An error becomes a warning.

        If `is_patient` is true, transient errors are retried for as long as --retry-for allows.
        """
        self._end(retry_for_s=self._retry_for_s if is_patient else 0.0)

    def _end(self, *, retry_for_s: float = 0.0) -> None:
        taken, self._taken = self._taken, None
        try:
            if taken is not None:
                # The first interrupt waits until the settings are restored. A second one leaves them changed.
                with holding_interrupts(limit=1):
                    self._settings = _join(taken.results, self._release(taken, retry_for_s=retry_for_s))
        finally:
            self._close()

    def _release(self, taken: LeaseReport, *, retry_for_s: float) -> Sequence[SettingResult]:
        """Restore the settings. An error becomes a warning, and does not make the load fail."""
        backend = self._backend
        assert backend is not None
        try:
            report = self._tools.patiently(lambda: backend.release(taken.lease_ids[0]), retry_for_s=retry_for_s)
            if self._is_again:
                # An earlier attempt may have lost its session while it took a lease. Restore the settings of that lease
                # too.
                self._forget(self._tools.patiently(lambda: backend.leases().clear(), retry_for_s=retry_for_s).lease_ids)
        except PenstockError as error:
            self._tools.warnings.warn(
                "settings", f"settings were not restored ({error.message}): run penstock settings restore"
            )
            return ()
        except KeyboardInterrupt:
            self._tools.warnings.warn(
                "settings", "settings were not restored (interrupted): run penstock settings restore"
            )
            raise
        for warning in report.warnings:
            self._tools.warnings.warn("settings", warning)
        self._forget(report.lease_ids)
        return report.results

    def _forget(self, lease_ids: Sequence[str]) -> None:
        """Remove the notes of ended leases from the ledger. If that fails, the next load finds that they have ended."""
        try:
            with self._tools.connect.borrow() as connection:
                TableStore(connection=connection, schema=self._tools.ledger.schema).forget(SERVER, [], lease_ids)
        except PenstockError as error:
            _log.info("the note of a lease was not removed: %s", error.message)

    def _close(self) -> None:
        backend, self._backend = self._backend, None
        if backend is not None:
            backend.close()

    def _open_backend(self) -> SettingsBackend:
        assert self._tools.open_settings is not None
        return self._tools.open_settings()

    def _is_too_small(self) -> bool:
        """Return whether `auto` changes no settings because the load is small. Then the server is not asked."""
        return self._choice == "auto" and is_too_small(total_size(work.source for work in self._works))

    def _request(self) -> LeaseRequest:
        expected_wal_bytes, wal_free_bytes = self._expect()
        return LeaseRequest(
            profile=BULK_LOAD if self._choice == "auto" else find_profile(self._choice),
            client=client_name(),
            reason=f"load {self._plan.load_id}",
            expected_wal_bytes=expected_wal_bytes,
            wal_free_bytes=wal_free_bytes,
        )

    def _expect(self) -> tuple[int | None, int | None]:
        """Return the WAL that the load is expected to write and the free space for WAL, in bytes; None if unknown."""
        oids = [0 if target.facts is None else target.facts.oid for target in self._plan.targets]
        with self._tools.connect.borrow() as connection:
            places = read_table_storage(connection, oids)
        path = places[0].wal_path
        disk = measure_disk(Path(path)) if self._is_local and path is not None else None
        return estimate_wal(self._works, places), None if disk is None else disk.free_bytes


def _join(taken: Sequence[SettingResult], released: Sequence[SettingResult]) -> tuple[LeasedSetting, ...]:
    ends = {result.name: result for result in released}
    joined = []
    for result in taken:
        end = ends.get(result.name)
        after = result.after if end is None else end.after
        note = "not restored" if end is None else end.note
        joined.append(
            LeasedSetting(
                name=result.name,
                before=result.before,
                during=result.after,
                after=after,
                note=None if after == result.before else note,
            )
        )
    return tuple(joined)
