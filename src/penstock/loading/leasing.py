"""A load's lease on the server's settings: decided before it, taken around it, given back on every way out of it."""

from __future__ import annotations

import logging
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Self, TypeVar

from penstock.errors import PenstockError
from penstock.host import measure_disk
from penstock.loading.claims import client_name
from penstock.loading.space import SpaceInput, estimate_wal
from penstock.loading.work import all_objects
from penstock.model.settings import LeasedSetting, LeaseReport, LoadSettings
from penstock.server.space import read_table_spaces
from penstock.settings.decide import choose_auto, is_too_small
from penstock.settings.lease import LeaseRequest, refuse_obstacle
from penstock.settings.profiles import BULK_LOAD, find_profile

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import TracebackType

    from penstock.model.plan import LoadPlan, ObjectSample
    from penstock.model.settings import SettingResult
    from penstock.server.connection import ConnectionFactory
    from penstock.settings.backend import SettingsBackend

_log = logging.getLogger(__name__)

_T = TypeVar("_T")


class LoadLease:
    """Holds the lease of one load; a context manager around it. `choice` is "auto" or a profile's name.

    `open_backend` tells how settings of the server are changed. A profile that was named must be had: without the
    rights the load does not begin. `is_local`: the server's directories are this machine's.
    """

    def __init__(
        self,
        plan: LoadPlan,
        samples: Sequence[ObjectSample],
        connect: ConnectionFactory,
        open_backend: Callable[[], SettingsBackend],
        *,
        choice: str,
        is_local: bool,
        notice: Callable[[str], None],
    ) -> None:
        self._plan = plan
        self._samples = samples
        self._connect = connect
        self._open_backend = open_backend
        self._choice = choice
        self._is_local = is_local
        self._notice = notice
        self._backend: SettingsBackend | None = None
        self._taken: LeaseReport | None = None
        self.settings: tuple[LeasedSetting, ...] = ()

    def look(self) -> LoadSettings:
        """Return what the load would change; changes nothing. Raises PenstockError."""
        backend: SettingsBackend | None = None
        try:
            if self._is_too_small():
                return LoadSettings(choice=self._choice, reason="the load is too small to gain from it")
            backend = self._open_backend()
            decision, facts = backend.look(self._request())
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
    def is_taken(self) -> bool:
        """Whether settings of the server are others now."""
        return self._taken is not None

    def __enter__(self) -> Self:
        if self._is_too_small():
            return self
        try:
            self._take()
        except PenstockError as error:
            self._close()
            if self._choice != "auto":
                raise
            self._notice(f"the server's settings stay as they are: {error.message}")
        except BaseException:
            self._close()
            raise
        return self

    def _take(self) -> None:
        self._backend = self._open_backend()
        request = self._request()
        decision, facts = self._backend.look(request)
        if self._choice == "auto" and (reason := choose_auto(decision, facts)) is not None:
            _log.info("settings stay as they are: %s", reason)
            report = LeaseReport() if decision.obstacle is not None else self._backend.clear()
        else:
            refuse_obstacle(decision)
            report, _ = self._backend.take(request)
        for warning in report.warnings:
            self._notice(warning)
        if report.lease_ids:
            self._taken = report

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        taken, self._taken = self._taken, None
        try:
            if taken is not None:
                self.settings = _join(taken.results, undisturbed(lambda: self._release(taken)))
        finally:
            self._close()

    def _release(self, taken: LeaseReport) -> Sequence[SettingResult]:
        """Put the settings back; what fails here is told, and is no failure of the load."""
        assert self._backend is not None
        try:
            report = self._backend.release(taken.lease_ids[0])
        except PenstockError as error:
            self._notice(f"settings were not put back ({error.message}): penstock settings restore does that")
            return ()
        for warning in report.warnings:
            self._notice(warning)
        return report.results

    def _close(self) -> None:
        backend, self._backend = self._backend, None
        if backend is not None:
            backend.close()

    def _is_too_small(self) -> bool:
        """Whether `auto` need not even ask the server."""
        return self._choice == "auto" and is_too_small(self._plan.size_bytes)

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
        """Return how much WAL the load is expected to write, and what is free where WAL is; None is not known."""
        oids = [0 if target.facts is None else target.facts.oid for target in self._plan.targets]
        with self._connect.borrow() as connection:
            spaces = read_table_spaces(connection, oids)
        inputs = [SpaceInput(sample=sample, space=space) for sample, space in zip(self._samples, spaces, strict=True)]
        path = spaces[0].place.wal_path
        disk = measure_disk(Path(path)) if self._is_local and path is not None else None
        return estimate_wal(all_objects(self._plan.targets), inputs), None if disk is None else disk.free_bytes


def _join(taken: Sequence[SettingResult], released: Sequence[SettingResult]) -> tuple[LeasedSetting, ...]:
    ends = {result.name: result for result in released}
    joined = []
    for result in taken:
        end = ends.get(result.name)
        after = result.after if end is None else end.after
        note = "not put back" if end is None else end.note
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


def undisturbed(act: Callable[[], _T]) -> _T:
    """Run a function to its end though Ctrl-C comes, which is raised then; a second one gives it up."""
    results: list[_T] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(act())
        except BaseException as error:  # noqa: BLE001 (raised below, in the thread that waits)
            errors.append(error)

    thread = threading.Thread(target=run, name="penstock-settings", daemon=True)
    thread.start()
    interrupt: KeyboardInterrupt | None = None
    while thread.is_alive():
        try:
            thread.join()
        except KeyboardInterrupt as error:
            if interrupt is not None:
                raise
            interrupt = error
    if errors:
        raise errors[0]
    if interrupt is not None:
        raise interrupt
    return results[0]
