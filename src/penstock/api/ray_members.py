"""Members of a load on the nodes of a Ray cluster.

Ray places, restarts and watches the members. Each member is a process that loads with --join. The ledger alone decides
which member loads which rows, so the load does not depend on Ray to be correct.

Ray keeps the arguments of an actor to restart it. An `Order` may contain a password, so it is not an argument of the
actor. Instead, a method call passes the order after each start, and no output of the actor is forwarded.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, replace
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from penstock.api.connect import connect_to
from penstock.core.errors import LeftOutError, PenstockError, UsageError
from penstock.core.slotted import slotted
from penstock.core.values.job import Housekeeping, Request
from penstock.loading.loader import Loader
from penstock.loading.plan.identity import job_from_json, job_to_json

if TYPE_CHECKING:
    from penstock.loading.values.outcome import LoadProgress

_LOOK_S = 1.0

# How long members may take to finish their batches, or to see that the load is complete, before they are killed.
_END_PATIENCE_S = 30.0


class Stopped(Exception):
    """Ends the load of a member, because the command that started the members asked them to stop."""


@slotted
class Order:
    """What a member is to load, and how it connects. The repr shows no values, because one may be a password."""

    job: str
    access: dict[str, Any]
    housekeeping: Housekeeping
    # The environment variables of libpq.
    environment: dict[str, str]

    def __repr__(self) -> str:
        return "Order()"


def make_order(request: Request) -> Order:
    """Return the order for a request. Its job has `join`, and local sources with absolute paths.

    A member may lead the load, so it gets what the request says of the server's settings and of the ledger.
    """
    targets = tuple(
        replace(target, sources=tuple(map(_without_folder, target.sources))) for target in request.job.targets
    )
    job = replace(request.job, targets=targets, rules=replace(request.job.rules, join=True))
    given = request.housekeeping
    return Order(
        job=job_to_json(job),
        access=asdict(request.access),
        housekeeping=Housekeeping(
            ledger_schema=given.ledger_schema,
            publish_ledger=given.publish_ledger,
            settings=given.settings,
            shared_group=given.shared_group,
            no_record=True,
        ),
        environment={name: value for name, value in os.environ.items() if name.startswith("PG")},
    )


def _without_folder(source: str) -> str:
    """Return a source that means the same in another current directory, with what is secret in a URL."""
    return source if "://" in source else os.path.abspath(source)  # noqa: PTH100 (pathlib does not take .. away)


class RayMember:
    """A process that Ray starts on a node. It takes part in a load as another process with --join does.

    Ray calls its methods in several threads.
    """

    def __init__(self) -> None:
        self._is_stopped = threading.Event()
        self._progress = (0, 0, 0, 0)

    def load(self, order: Order) -> LeftOutError | str | None:
        """Load until the load is complete or `stop` was called.

        Return the error that ended the member, None if there was none.
        """
        os.environ.update(order.environment)
        try:
            with Loader(connect_to(**order.access), order.housekeeping) as loader:
                loader.run(loader.plan(job_from_json(order.job)), on_progress=self._note)
        except Stopped:
            return None
        except LeftOutError as error:
            return error
        except PenstockError as error:
            return str(error)
        return None

    def progress(self) -> tuple[int, int, int, int]:
        """Return the rows, the bytes read, the bytes sent by COPY, and the sessions of this member up to now."""
        return self._progress

    def stop(self) -> None:
        """Ask the member to commit its batches, and to end."""
        self._is_stopped.set()

    def _note(self, progress: LoadProgress) -> None:
        self._progress = (progress.rows, progress.bytes_read, progress.bytes_copied, progress.sessions)
        if self._is_stopped.is_set():
            raise Stopped


class RayMembers:
    """Starts a member on each node of a Ray cluster, and again if its process or node dies. Close it after use.

    Raises UsageError if Ray is not installed, or if the cluster does not answer.
    """

    def __init__(
        self,
        order: Order,
        *,
        # The cluster's address, or "auto" for the cluster that Ray finds.
        address: str,
        # How many members to start, None for one on each node.
        count: int | None,
        notice: Callable[[str], None],
    ) -> None:
        if find_spec("ray") is None:
            raise UsageError(
                "--ray needs Ray", hint='Install it, here and on the nodes: pip install "pg-penstock[ray]".'
            )
        # The import takes a second, so only loads with Ray do it.
        self._ray: Any = import_module("ray")
        self._order = order
        self._notice = notice
        self._is_closing = threading.Event()
        self._last_look_s = 0.0
        self._others = (0, 0, 0, 0)
        self._left_out: LeftOutError | None = None
        try:
            self._ray.init(address=address, log_to_driver=False, configure_logging=False, namespace="penstock")
        except (ConnectionError, RuntimeError, ValueError) as error:
            raise UsageError(f'cannot connect to the Ray cluster at "{address}"', detail=str(error)) from error
        nodes = sum(bool(node["Alive"]) for node in self._ray.nodes())
        self._actors = [self._start() for _ in range(count or nodes)]
        self._watchers = [
            threading.Thread(target=self._watch, args=(number,), daemon=True) for number in range(len(self._actors))
        ]
        for watcher in self._watchers:
            watcher.start()
        notice(f"started {len(self._actors)} members on {nodes} nodes of the Ray cluster")

    def _start(self) -> Any:
        options = {"max_restarts": -1, "max_task_retries": 0, "scheduling_strategy": "SPREAD", "max_concurrency": 3}
        return self._ray.remote(RayMember).options(**options).remote()

    def _watch(self, number: int) -> None:
        """Start the load of a member, and start it again after each restart of the member's process."""
        actor = self._actors[number]
        while not self._is_closing.is_set():
            try:
                error = self._ray.get(actor.load.remote(self._order))
            except self._ray.exceptions.RayError:
                if not self._is_closing.is_set():
                    self._notice(f"member {number + 1} of the Ray cluster has died: it is started again")
                    self._is_closing.wait(_LOOK_S)
                continue
            if isinstance(error, LeftOutError):
                self._left_out = error
            elif error is not None:
                self._notice(f"member {number + 1} of the Ray cluster has ended: {error}")
            return

    def adding(self, on_progress: Callable[[LoadProgress], None] | None) -> Callable[[LoadProgress], None] | None:
        """Return a function that takes this process's progress, adds that of the members, and calls `on_progress`.

        Return None if `on_progress` is None.
        """
        if on_progress is None:
            return None

        def show(progress: LoadProgress) -> None:
            rows, bytes_read, bytes_copied, sessions = self._look()
            on_progress(
                replace(
                    progress,
                    rows=progress.rows + rows,
                    bytes_read=progress.bytes_read + bytes_read,
                    bytes_copied=progress.bytes_copied + bytes_copied,
                    sessions=progress.sessions + sessions,
                )
            )

        return show

    def _look(self) -> tuple[int, int, int, int]:
        """Return rows, bytes and sessions, added up over the members and read at most once a second.

        Members that do not answer within 0.1 s are not included.
        """
        if time.monotonic() - self._last_look_s >= _LOOK_S:
            self._last_look_s = time.monotonic()
            with suppress(self._ray.exceptions.RayError):
                calls = [actor.progress.remote() for actor in self._actors]
                ready, _ = self._ray.wait(calls, num_returns=len(calls), timeout=0.1)
                found = self._ray.get(ready)
                sums = [sum(values) for values in zip(*found, strict=True)] or [0, 0, 0, 0]
                self._others = (sums[0], sums[1], sums[2], sums[3])
        return self._others

    def close(self, *, is_complete: bool) -> None:
        """End the members. Members that have not ended after 30 seconds are killed.

        If `is_complete` is false, they are first asked to commit their batches. Raises LeftOutError if the load is
        complete, but a member listed more objects than the load had when it began.
        """
        self._is_closing.set()
        if not is_complete:
            for actor in self._actors:
                with suppress(self._ray.exceptions.RayError):
                    actor.stop.remote()
        until_s = time.monotonic() + _END_PATIENCE_S
        for watcher in self._watchers:
            watcher.join(max(0.0, until_s - time.monotonic()))
        if any(watcher.is_alive() for watcher in self._watchers):
            # Also of a complete load: a member that leads restores settings at its end.
            self._notice("members that have not ended are killed: run penstock repair, unless you resume the load")
        for actor in self._actors:
            with suppress(self._ray.exceptions.RayError):
                self._ray.kill(actor)
        self._ray.shutdown()
        if is_complete and self._left_out is not None:
            raise self._left_out
