"""Changes parameters in a parameter group of Amazon RDS, and waits some seconds until RDS has applied them."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar, Protocol

from penstock.changes.settings.values import parse_value, write_number
from penstock.errors import ServerError, TargetError
from penstock.model.server.identity import ServerIdentity
from penstock.server.facts.settings import find_unchanged, read_facts

if TYPE_CHECKING:
    from penstock.model.load.shape import Change, Hold
    from penstock.model.server.settings import AttachedGroup, SettingsFacts
    from penstock.server.connect.connection import Connection

# RDS applies dynamic parameters within seconds, or within some minutes at worst.
_APPLY_TIMEOUT_S = 300.0
APPLY_LOOK_S = 2.0


class ParameterGroups(Protocol):
    """The AWS API calls on one server's parameter group. Methods raise AwsError."""

    def describe(self, *, is_brief: bool = False) -> AttachedGroup:
        """Return the group that is attached to the server now. If `is_brief`, read only the group's state."""

    def read_values(self, group: AttachedGroup) -> dict[str, str]:
        """Return the parameters that are set in the group, without those that have their defaults."""

    def write(self, group: AttachedGroup, values: Mapping[str, str | None]) -> None:
        """Set dynamic parameters with immediate effect. None resets a parameter to its default."""

    def read_tags(self, group: AttachedGroup) -> dict[str, str]:
        """Return the group's tags."""

    def write_tags(self, group: AttachedGroup, tags: Mapping[str, str]) -> None:
        """Add tags, or change their values."""

    def remove_tags(self, group: AttachedGroup, keys: Sequence[str]) -> None:
        """Remove tags."""

    def close(self) -> None:
        """Close connections."""


@dataclass(kw_only=True)
class Parameters:
    """Sets parameters of one group, as an Applier."""

    connection: Connection
    groups: ParameterGroups
    # The group to use, None for the one that is attached.
    changed: AttachedGroup | None = None
    may_share_group: bool = False
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    is_shared: ClassVar[bool] = True

    @cached_property
    def attached(self) -> AttachedGroup:
        """Return the group that is attached."""
        return self.groups.describe()

    @property
    def group(self) -> AttachedGroup:
        """Return the group to use."""
        return self.changed or self.attached

    @property
    def is_attached(self) -> bool:
        """Return whether the group to use is the one that is attached."""
        return self.group.name == self.attached.name

    def identify(self) -> ServerIdentity:
        return ServerIdentity.of_resource(self.group.resource_id, address=self.group.identifier)

    def read_facts(self) -> SettingsFacts:
        return replace(
            read_facts(self.connection),
            wal_free_bytes=self.group.free_bytes,
            group=self.group,
            may_share_group=self.may_share_group,
        )

    def read_lines(self) -> dict[str, str]:
        return self.groups.read_values(self.group)

    def to_text(self, name: str, value: float) -> str:
        return write_number(name, value)

    def refuse_line(self, name: str, text: str) -> None:
        raise TargetError(
            f"no lease on settings: {name} is a formula in parameter group {self.group.name}",
            detail=f"It is {text}.",
            hint="Set it to a number there.",
        )

    def apply(self, texts: Mapping[str, str | None], values: Mapping[str, str]) -> None:
        """Set parameters in the group. If the server uses this group, wait until it shows the new values.

        A parameter is reset if its text is None. It must then show the value that `values` has for it.
        """
        if not texts:
            return
        is_attached = self.is_attached
        self.groups.write(self.group, texts)
        if is_attached:
            self._await({name: parse_value(name, text or values[name]) for name, text in texts.items()})

    def _await(self, wanted: Mapping[str, float]) -> None:
        """Wait until RDS has applied the group, and SQL shows the values. Raises ServerError if it does not."""
        began_s = self.clock()
        while True:
            state = self.groups.describe(is_brief=True).apply_state
            unchanged = find_unchanged(self.connection, wanted)
            # Only static parameters wait for a reboot, and penstock changes dynamic ones only.
            if state in ("in-sync", "pending-reboot", None) and not unchanged:
                return
            if self.clock() - began_s > _APPLY_TIMEOUT_S or state == "failed-to-apply":
                names: Collection[str] = [one.name for one in unchanged] or list(wanted)
                raise ServerError(
                    f"parameter group {self.group.name} was changed, and {', '.join(names)} has an unexpected value",
                    detail=f"The group is {state}.",
                    hint="See the instance's events; run penstock settings restore to restore the group.",
                )
            self.sleep(APPLY_LOOK_S)

    def describe_foreign(self, hold: Hold, changes: Sequence[Change]) -> str:  # noqa: ARG002 (see Applier)
        instance = "another instance" if hold.server is None else hold.server.resource_id
        return (
            f"lease {hold.holder_id} in group {self.group.name} was taken on {instance}, this is "
            f"{self.group.resource_id}: restore it there, or with --forget here"
        )
