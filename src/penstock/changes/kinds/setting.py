"""Changes settings of the server, in postgresql.auto.conf or a parameter group, and restores their prior texts.

All settings are set, and then the server's reload is awaited once. If a text is neither the prior one nor the one that
was set, somebody else has written it, and it is not changed.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar, Protocol

from penstock.changes.context import Kind
from penstock.changes.settings.decide import missing_grants
from penstock.changes.settings.profiles import LEASABLE
from penstock.changes.settings.values import is_sound, parse_value, show, to_text
from penstock.errors import ServerError, TargetError
from penstock.model.load.shape import Change, Hold, RepairAction, server_change
from penstock.model.server.settings import SettingResult, SettingsDecision, SettingsFacts
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
    from penstock.changes.context import Context, Restored
    from penstock.model.server.identity import ServerIdentity
    from penstock.server.connect.connection import Connection

_log = logging.getLogger(__name__)

SETTING = "setting"


class Applier(Protocol):
    """Sets settings: in postgresql.auto.conf, or in a parameter group.

    `is_shared` is true if servers may share the place.
    """

    is_shared: ClassVar[bool]

    def identify(self) -> ServerIdentity:
        """Return which server this is."""

    def read_facts(self) -> SettingsFacts:
        """Return the facts from which settings are chosen, without `expected_wal_bytes`, which the caller adds."""

    def read_lines(self) -> dict[str, str]:
        """Return the present texts of the settings in the file or the parameter group, by the name of the setting."""

    def to_text(self, name: str, value: float) -> str:
        """Return the text to set for a number in pg_settings' unit."""

    def refuse_line(self, name: str, text: str) -> None:
        """Raise TargetError for a text that could not be restored."""

    def apply(self, texts: Mapping[str, str | None], values: Mapping[str, str]) -> None:
        """Set settings, and wait until the server has their values. None removes a line.

        `values` are the expected values of settings without a line, in pg_settings' unit.
        """

    def describe_foreign(self, hold: Hold, changes: Sequence[Change]) -> str:
        """Return a message about a lease that was taken on another server."""


class Settings(Kind):
    """The settings of one server, as a Kind of change."""

    def __init__(self, applier: Applier) -> None:
        self._applier = applier

    def handles(self, change: Change) -> bool:
        """Return whether a record is of a setting."""
        return change.kind == SETTING

    def plan(self, decision: SettingsDecision, holder_id: str) -> list[Change]:
        """Return the records of the changes to make. Raises TargetError for a text that could not be restored."""
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
        """Set the recorded settings that still have their prior text. Raises TargetError, ServerError, AwsError."""
        lines = self._applier.read_lines()
        notes = {change.name: _refuse_apply(change, lines.get(change.name)) for change in changes}
        texts = {change.name: change.record["wanted"] for change in changes if notes[change.name] is None}
        return self._set(context.connection, texts, changes, {name: note for name, note in notes.items() if note})

    def restore(self, context: Context, changes: Sequence[Change], done: Restored) -> Sequence[Change]:
        """Set the prior texts. Return the changes, because their records can be removed. Raises the same as `apply`."""
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
        # AWS checks the rights on a parameter group.
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
    """Return why a setting is not restored, None if its prior text should be set; `line` is its present text.

    Only numbers are restored, since another role may have written the record.
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
    """Sets settings in postgresql.auto.conf, as an Applier."""

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
