"""Changes settings of the server, in postgresql.auto.conf or a parameter group, and restores their prior texts.

All settings are set, and then the server's reload is awaited once. If the text of a setting is neither the prior one
nor the one that was set, somebody else has written it, and the setting is not changed.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar, Protocol

from penstock.changes.context import Context, Kind, Restored
from penstock.changes.values import Change, Hold, RepairAction, server_change
from penstock.core.catalogue.settings import (
    AttachedGroup,
    SettingResult,
    SettingsDecision,
    SettingsFacts,
    alter_system,
    find_unchanged,
    read_facts,
    read_identity,
    read_lines,
    read_settings,
    reload,
)
from penstock.core.connect.connection import Connection
from penstock.core.errors import ServerError, TargetError
from penstock.core.values.server import ServerIdentity
from penstock.settings.decide import LEASABLE, is_sound, missing_grants, parse_value, show, to_text, write_number

_log = logging.getLogger(__name__)

SETTING = "setting"


class Applier(Protocol):
    """Reads and writes settings of a server where they are stored: in postgresql.auto.conf, or in a parameter group.

    `is_shared` is true if several servers may share the file or the group. Methods raise TargetError, ServerError,
    AwsError.
    """

    is_shared: ClassVar[bool]

    def identify(self) -> ServerIdentity:
        """Return the identity of the server, which tells it from other servers after a failover."""

    def read_facts(self) -> SettingsFacts:
        """Return the facts of the server by which settings are chosen. The caller adds `expected_wal_bytes`."""

    def read_lines(self) -> dict[str, str]:
        """Return the settings that the file or the parameter group has now, as texts of values by name."""

    def to_text(self, name: str, value: float) -> str:
        """Return the text of a value as the file or the parameter group has it.

        `value` is in the unit of pg_settings.
        """

    def refuse_line(self, name: str, text: str) -> None:
        """Raise TargetError, which says that the present value of a setting could not be restored after a lease.

        `text` is the value as the file or the parameter group has it.
        """

    def apply(self, texts: Mapping[str, str | None], values: Mapping[str, str]) -> None:
        """Write settings, and wait until the server has their values.

        `texts` maps names to texts of values; None removes the setting from the file or the group. `values` maps names
        to the values, in the unit of pg_settings, that settings are expected to have after they were removed.
        """

    def describe_foreign(self, hold: Hold, changes: Sequence[Change]) -> str:
        """Return a message about a lease that was taken on another server.

        `changes` are the records of changed settings.
        """


class SettingsKind(Kind):
    """The settings of one server, as a Kind of change that the journal records and a repair restores."""

    def __init__(self, applier: Applier) -> None:
        self._applier = applier

    def handles(self, change: Change) -> bool:
        """Return whether a recorded change is one of a setting."""
        return change.kind == SETTING

    def plan(self, decision: SettingsDecision, holder_id: str) -> list[Change]:
        """Return the records of the changes that a lease is about to make. `holder_id` is the id of the lease.

        Raises TargetError if the present text of a setting could not be restored.
        """
        lines = self._applier.read_lines()
        changes = []
        for each in decision.leased:
            prior = lines.get(each.name)
            if prior is not None and not is_sound(each.name, prior):
                self._applier.refuse_line(each.name, prior)
            wanted = self._applier.to_text(each.name, each.value)
            state = each.prior
            record = {
                "prior": prior,
                "wanted": wanted,
                "value": state.value,
                "source": state.source,
                "source_file": state.source_file,
            }
            changes.append(server_change(SETTING, each.name, record, holder_id))
        return changes

    def apply(self, context: Context, changes: Sequence[Change]) -> list[SettingResult]:
        """Set the recorded settings, and return the values of each before and after.

        A setting whose text is not the recorded one any more is not set. Raises TargetError, ServerError, AwsError.
        """
        lines = self._applier.read_lines()
        notes = {change.name: _refuse_apply(change, lines.get(change.name)) for change in changes}
        texts = {change.name: change.record["wanted"] for change in changes if notes[change.name] is None}
        return self._set(context.connection, texts, changes, {name: note for name, note in notes.items() if note})

    def restore(self, context: Context, changes: Sequence[Change], done: Restored) -> Sequence[Change]:
        """Write each setting as the file or the parameter group had it before, and add the results to `done`.

        A setting that another session has changed since is left as it is, and its result says so. Return all of
        `changes`, because the caller can remove the records of all. Raises TargetError, ServerError, AwsError.
        """
        self._refuse_rights(changes)
        lines = self._applier.read_lines()
        notes = {change.name: refuse_restore(change, lines.get(change.name)) for change in changes}
        texts = {change.name: change.record["prior"] for change in changes if notes[change.name] is None}
        done.settings += self._set(context.connection, texts, changes, notes)
        return changes

    def describe(self, context: Context, change: Change) -> tuple[RepairAction, str]:  # noqa: ARG002 (see Kind)
        return "restore", "the session that changed it has ended"

    def _refuse_rights(self, changes: Sequence[Change]) -> None:
        facts = self._applier.read_facts()
        # Grants in the database are not checked for a parameter group, because AWS checks the rights on it.
        names = [] if facts.group else sorted(change.name for change in changes if change.name in LEASABLE)
        if names and (missing := missing_grants(facts, names)):
            raise TargetError("the role lacks privileges to restore settings", hint=" ".join(missing))

    def _set(
        self,
        connection: Connection,
        texts: Mapping[str, str | None],
        changes: Sequence[Change],
        notes: Mapping[str, str | None],
    ) -> list[SettingResult]:
        before = read_settings(connection)
        for name, text in texts.items():
            _log.info("changing %s to %s", name, text or "no line")
        # Apply even if there is no text to set, because a killed process may have set one without waiting for the
        # reload.
        self._applier.apply(texts, {change.name: change.record["value"] for change in changes})
        after = read_settings(connection)
        return [
            SettingResult(
                name=name,
                before=show(before[name].value, before[name].unit),
                after=show(after[name].value, after[name].unit),
                note=notes.get(name),
            )
            for name in sorted(change.name for change in changes)
            if name in after
        ]


def refuse_restore(change: Change, line: str | None) -> str | None:
    """Return why a setting is not restored, None if its former text is to be set.

    `line` is the text that the file or the parameter group has now, None if it has none. Another role may have written
    the record, so only numbers are restored.
    """
    prior = change.record.get("prior")
    if line == prior:
        return "it has the right value"
    if change.name not in LEASABLE or line != change.record.get("wanted"):
        return _found(line)
    if prior is not None and not is_sound(change.name, prior):
        return f"its prior value {prior!r} is not valid"
    return None


def _refuse_apply(change: Change, line: str | None) -> str | None:
    """Return why a setting is not set: None if it should be set, "" if it has the wanted text already."""
    if line == change.record["wanted"]:
        return ""
    return None if line == change.record["prior"] else _found(line)


def _found(line: str | None) -> str:
    return f"changed by another session: its line {'was removed' if line is None else f'is now {line}'}"


class AlterSystem:
    """Reads and writes settings in postgresql.auto.conf, by ALTER SYSTEM. It is an Applier."""

    is_shared: ClassVar[bool] = False

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def identify(self) -> ServerIdentity:
        return read_identity(self._connection)

    def read_facts(self) -> SettingsFacts:
        return read_facts(self._connection)

    def read_lines(self) -> dict[str, str]:
        return {name: line.text for name, line in read_lines(self._connection).items() if line.text is not None}

    def to_text(self, name: str, value: float) -> str:
        return to_text(name, value)

    def refuse_line(self, name: str, text: str) -> None:
        raise TargetError(
            f"no lease on settings: {name} could not be restored",
            detail=f"Its line in postgresql.auto.conf is '{text}', and only plain numbers can be restored.",
            hint=f"Write it as a number with a unit: ALTER SYSTEM SET {name}.",
        )

    def apply(self, texts: Mapping[str, str | None], values: Mapping[str, str]) -> None:  # noqa: ARG002 (see Applier)
        for name, text in texts.items():
            alter_system(self._connection, name, text)
        reload(self._connection)
        # If a line was removed, the server's other files decide the value, so the value is not checked.
        wanted = {name: parse_value(name, text) for name, text in texts.items() if text is not None}
        unchanged = find_unchanged(self._connection, wanted)
        if unchanged:
            raise ServerError(
                f"{unchanged[0].name} is still {show(unchanged[0].value, unchanged[0].unit)} after a reload",
                detail=f"Its value comes from: {unchanged[0].source}.",
                hint="Another source overrides postgresql.auto.conf; run penstock settings restore.",
            )

    def describe_foreign(self, hold: Hold, changes: Sequence[Change]) -> str:
        texts = {change.name: change.record.get("prior") for change in changes}
        undo = [
            f"ALTER SYSTEM RESET {name};" if text is None else f"ALTER SYSTEM SET {name} = '{text}';"
            # The user may copy these statements, so they contain only what restoring would set.
            for name, text in ((name, texts.get(name)) for name in hold.names if name in LEASABLE)
            if text is None or is_sound(name, text)
        ]
        return (
            f"lease {hold.holder_id} ({hold.reason}) was taken on {hold.server}, and this is {self.identify()}: "
            "nothing was changed. If a server still has its values, restore them there: "
            f"{' '.join(undo)} SELECT pg_reload_conf(); penstock settings restore --forget then removes the record."
        )


# How long to wait until RDS has applied dynamic parameters, and how often to look. RDS takes seconds, at worst minutes.
_APPLY_TIMEOUT_S = 300.0
APPLY_LOOK_S = 2.0


class ParameterGroups(Protocol):
    """The AWS API calls on one server's parameter group. Methods raise AwsError."""

    def describe(self, *, is_brief: bool = False) -> AttachedGroup:
        """Return the parameter group that is attached to the server now.

        With `is_brief`, AWS is not asked which other servers use the group.
        """

    def read_values(self, group: AttachedGroup) -> dict[str, str]:
        """Return the parameters that are set in the group, by name, without those at their defaults."""

    def write(self, group: AttachedGroup, values: Mapping[str, str | None]) -> None:
        """Set dynamic parameters with immediate effect. A value of None resets the parameter to its default."""

    def read_tags(self, group: AttachedGroup) -> dict[str, str]:
        """Return the group's tags, by key."""

    def write_tags(self, group: AttachedGroup, tags: Mapping[str, str]) -> None:
        """Add tags, or change their values."""

    def remove_tags(self, group: AttachedGroup, keys: Sequence[str]) -> None:
        """Remove the tags with these keys."""

    def close(self) -> None:
        """Close the connections to AWS."""


@dataclass(kw_only=True)
class Parameters:
    """Reads and writes settings in one parameter group. It is an Applier."""

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
        """Return the parameter group that is attached to the server."""
        return self.groups.describe()

    @property
    def group(self) -> AttachedGroup:
        """Return the parameter group to read and write: `changed`, or else the attached one."""
        return self.changed or self.attached

    @property
    def is_attached(self) -> bool:
        """Return whether the group to read and write is the one that is attached to the server."""
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
        """Set parameters in the group. If the group is attached to the server, wait until SQL shows the new values.

        `texts` maps names to texts of values; None resets the parameter. `values` maps names to the values that
        parameters are expected to have after a reset. Raises ServerError if that takes too long, AwsError.
        """
        if not texts:
            return
        is_attached = self.is_attached
        self.groups.write(self.group, texts)
        if is_attached:
            self._await({name: parse_value(name, text or values[name]) for name, text in texts.items()})

    def _await(self, wanted: Mapping[str, float]) -> None:
        """Wait until RDS has applied the group and SQL shows the values. Raises ServerError if that takes too long."""
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
