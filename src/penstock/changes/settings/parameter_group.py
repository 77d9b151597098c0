"""Leases on the settings of a server of Amazon RDS, by its parameter group; the lease is tags of the group.

As with ALTER SYSTEM the lease is there before the first change. Its holder is alive while its session holds an advisory
lock at the instance. A group that several instances share is changed by whoever says so; each sees the others' tags.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar, Protocol

from penstock.changes.settings.backend import SettingsBackend
from penstock.changes.settings.group_tags import lease_keys, lease_tags, prior_key, prior_tags, read_tags, write_number
from penstock.changes.settings.leases import Leases, Line
from penstock.changes.settings.values import parse_value
from penstock.errors import AwsError, ServerError, TargetError
from penstock.model.server.settings import ServerIdentity
from penstock.server.facts.settings import find_unchanged, read_facts
from penstock.server.leases import LeaseLocks

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from penstock.changes.settings.leases import LeaseRequest
    from penstock.model.server.settings import (
        AttachedGroup,
        Lease,
        LeaseReport,
        PriorSetting,
        SettingsDecision,
        SettingsFacts,
    )
    from penstock.server.connect.connection import ConnectionFactory

_log = logging.getLogger(__name__)

# RDS applies dynamic parameters within seconds, some minutes at worst.
_APPLY_TIMEOUT_S = 300.0
_APPLY_LOOK_S = 2.0

# An account's calls are throttled for seconds. What is not restored at the end of a load waits for somebody to do it.
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


class GroupSettings(SettingsBackend):
    """Changes settings in the parameter group of a server of Amazon RDS."""

    def __init__(
        self,
        connect: ConnectionFactory,
        groups: ParameterGroups,
        *,
        may_share_group: bool = False,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        super().__init__(connect)
        self._groups = groups
        self._may_share_group = may_share_group
        self._clock = clock
        self._sleep = sleep
        self._parameters: _Parameters | None = None
        # Of the lease that is held: another may be attached when it ends.
        self._changed: AttachedGroup | None = None

    def take(self, request: LeaseRequest) -> tuple[LeaseReport, SettingsDecision]:
        """Change parameters under a new lease."""
        self._changed = None
        report, decision = super().take(request)
        if report.lease_ids and self._parameters is not None:
            self._changed = self._parameters.group
        return report, decision

    def release(self, lease_id: str) -> LeaseReport:
        """End a lease of this process, in the group where it was taken; AWS that is busy is waited for."""
        began_s = self._clock()
        while True:
            try:
                report = super().release(lease_id)
            except AwsError as error:
                if not error.is_transient or self._clock() - began_s > _BUSY_TIMEOUT_S:
                    raise
                _log.info("%s; trying again", error.message)
                self._sleep(_APPLY_LOOK_S)
            else:
                break
        self._changed, used = None, self._parameters
        if used is None or used.is_attached or not report.results:
            return report
        told = f"parameter group {used.attached.name} is attached now: the lease on {used.group.name} was ended there"
        return replace(report, warnings=(told,))

    def refuse_blindness(self) -> None:
        """Refuse nothing: the group that is attached has them."""

    def close(self) -> None:
        """Let go of sessions."""
        super().close()
        self._groups.close()

    def _leases(self) -> Leases:
        self._parameters = _Parameters(
            connection=self._open_session(),
            groups=self._groups,
            changed=self._changed,
            may_share_group=self._may_share_group,
            clock=self._clock,
            sleep=self._sleep,
        )
        return Leases(self._parameters, self._parameters)


@dataclass(kw_only=True)
class _Parameters(LeaseLocks):
    """One look at a group, which has settings and, as tags, leases on them; see Store and Applier.

    `changed` is the group that is meant, None for the one that is attached.
    """

    groups: ParameterGroups
    changed: AttachedGroup | None
    may_share_group: bool
    clock: Callable[[], float]
    sleep: Callable[[float], None]
    is_shared: ClassVar[bool] = True

    @cached_property
    def attached(self) -> AttachedGroup:
        """Return the group that is attached."""
        return self.groups.describe()

    @property
    def group(self) -> AttachedGroup:
        """Return the group that is meant."""
        return self.changed or self.attached

    @property
    def is_attached(self) -> bool:
        """Whether that is the one that is attached."""
        return self.group.name == self.attached.name

    # ---------------------------------------------------------------- leases as tags

    def exists(self) -> bool:
        return not self.group.is_default

    def ensure(self) -> None:
        """Create nothing: tags need nothing to be written into."""

    def read(self) -> tuple[list[Lease], list[PriorSetting]]:
        leases, priors = read_tags(self.groups.read_tags(self.group))
        return [replace(lease, holder_pid=self.find_holder(lease.lease_id)) for lease in leases], priors

    def write(self, lease: Lease | None, priors: Sequence[PriorSetting]) -> None:
        self.groups.write_tags(self.group, (lease_tags(lease) if lease else {}) | prior_tags(priors))

    def forget(self, lease_ids: Sequence[str]) -> None:
        leases, priors = read_tags(self.groups.read_tags(self.group))
        wanted = {name for lease in leases if lease.lease_id not in lease_ids for name in lease.wanted}
        keys = [key for lease_id in sorted(lease_ids) for key in lease_keys(lease_id)]
        keys += [prior_key(prior.name) for prior in priors if prior.name not in wanted]
        self.groups.remove_tags(self.group, keys)

    # ---------------------------------------------------------------- settings as parameters

    def identify(self) -> ServerIdentity:
        group = self.group
        return ServerIdentity(
            system_identifier=0, timeline=0, address=group.identifier, port=None, resource_id=group.resource_id
        )

    def read_facts(self) -> SettingsFacts:
        return replace(
            read_facts(self.connection),
            wal_free_bytes=self.group.free_bytes,
            group=self.group,
            may_share_group=self.may_share_group,
        )

    def read_lines(self) -> dict[str, Line]:
        return {name: Line(text) for name, text in self.groups.read_values(self.group).items()}

    def to_text(self, name: str, value: float) -> str:
        return write_number(name, value)

    def refuse_line(self, name: str, text: str) -> None:
        raise TargetError(
            f"no lease on settings: {name} is a formula in parameter group {self.group.name}",
            detail=f"It is {text}.",
            hint="Set it to a number there.",
        )

    def apply(self, texts: Mapping[str, str | None], priors: Sequence[PriorSetting]) -> None:
        """Set parameters; what becomes of a group that is attached no more shows in no server, and is not waited for.

        A parameter at its default becomes what it was.
        """
        is_attached = self.is_attached
        if not texts:
            return
        self.groups.write(self.group, texts)
        if is_attached:
            values = {prior.name: prior.value for prior in priors}
            self._await({name: parse_value(name, text or values[name]) for name, text in texts.items()})

    def _await(self, wanted: Mapping[str, float]) -> None:
        """Wait until RDS has applied the group, and SQL tells the values. Raises ServerError where it does not."""
        began_s = self.clock()
        while True:
            state = self.groups.describe(is_brief=True).apply_state
            unchanged = find_unchanged(self.connection, wanted)
            # What waits for a reboot is somebody else's: ours are dynamic.
            if state in ("in-sync", "pending-reboot", None) and not unchanged:
                return
            if self.clock() - began_s > _APPLY_TIMEOUT_S or state == "failed-to-apply":
                names: Collection[str] = [one.name for one in unchanged] or list(wanted)
                raise ServerError(
                    f"parameter group {self.group.name} was changed, and {', '.join(names)} has an unexpected value",
                    detail=f"The group is {state}.",
                    hint="See the instance's events; run penstock settings restore to restore the group.",
                )
            self.sleep(_APPLY_LOOK_S)

    def describe_foreign(self, lease: Lease, priors: Sequence[PriorSetting]) -> str:  # noqa: ARG002 (see Applier)
        return (
            f"lease {lease.lease_id} in group {self.group.name} was taken on {lease.server.resource_id}, this is "
            f"{self.group.resource_id}: restore it there, or with --forget here"
        )
