"""What a profile comes to on a server, decided from facts alone."""

from __future__ import annotations

from dataclasses import replace

import pytest

from penstock.core.catalogue.settings import SettingsDecision, SettingsFacts, SettingsRights, SettingState
from penstock.core.errors import UsageError
from penstock.core.values.inspection import Archiver, Flavour, Manager, Slot
from penstock.settings.decide import BULK_LOAD, PROFILES, decide, is_too_small, parse_assignments, pays
from penstock.settings.refusals import REFUSALS, Refusal, refuse_value

GIB = 1024**3

RIGHTS = SettingsRights(
    user="loader",
    is_superuser=True,
    reads_settings=True,
    reads_files=True,
    may_reload=True,
    may_record=True,
    allows_alter_system=True,
)


def state(name: str, value: str, unit: str | None, **more: object) -> SettingState:
    """Return a setting as a server without configuration has it."""
    fields = {"context": "sighup", "source": "default", "source_file": None, "source_line": None}
    return SettingState(name=name, value=value, unit=unit, **{**fields, "may_alter_system": True, **more})  # type: ignore[arg-type]


DEFAULTS = (
    state("checkpoint_completion_target", "0.9", None),
    state("checkpoint_timeout", "300", "s"),
    state("maintenance_work_mem", "65536", "kB", context="user"),
    state("max_wal_size", "1024", "MB"),
    state("min_wal_size", "80", "MB"),
)

FACTS = SettingsFacts(
    version_num=180_000,
    is_in_recovery=False,
    flavour=Flavour(kind="postgresql", name="PostgreSQL"),
    managers=(),
    rights=RIGHTS,
    settings=DEFAULTS,
)


def with_setting(facts: SettingsFacts, changed: SettingState) -> SettingsFacts:
    """Return facts in which one setting is another."""
    return replace(facts, settings=tuple(changed if one.name == changed.name else one for one in facts.settings))


def texts(decision: SettingsDecision) -> dict[str, str]:
    """Return what is changed, by name."""
    return {change.name: change.text for change in decision.changes}


def reason(decision: SettingsDecision, name: str) -> str:
    """Return why a setting stays."""
    return next(skip.reason for skip in decision.skips if skip.name == name)


def test_default_server_gets_what_the_profile_says() -> None:
    """Where neither the load nor the volume is known, the least that helps."""
    decision = decide(BULK_LOAD, FACTS)
    assert texts(decision) == {"max_wal_size": "4096MB", "checkpoint_timeout": "1800s", "maintenance_work_mem": "1GB"}
    assert "settings are not lowered" in reason(decision, "checkpoint_completion_target")
    assert any("crash recovery" in note for note in decision.notes)
    assert decision.obstacle is None


@pytest.mark.parametrize(
    ("expected_gib", "free_gib", "max_wal_mb"),
    [
        (None, 1000, 4096),
        (1, 1000, 4096),
        (10, 1000, 10 * 1024 * 1.9 + 1),
        (10, 40, 10 * 1024),
        (1000, 1000, 64 * 1024),
        (1000, 100, 25 * 1024),
        (10, 8, 2 * 1024),
        (10, None, 4096),
    ],
)
def test_wal_is_sized_by_load_and_volume(expected_gib: int | None, free_gib: int | None, max_wal_mb: float) -> None:
    """1.9 times the expected WAL, 4 GB at least, 64 GB and a quarter of what is free at most."""
    facts = replace(
        FACTS,
        expected_wal_bytes=None if expected_gib is None else expected_gib * GIB,
        wal_free_bytes=None if free_gib is None else free_gib * GIB,
    )
    assert texts(decide(BULK_LOAD, facts))["max_wal_size"] == f"{int(max_wal_mb)}MB"


@pytest.mark.parametrize("free_gib", [None, 2, 1000])
def test_nothing_is_lowered(free_gib: int | None) -> None:
    """A server that has more keeps it, whatever is free."""
    facts = with_setting(FACTS, state("max_wal_size", str(100 * 1024), "MB"))
    facts = with_setting(facts, state("checkpoint_timeout", "3600", "s"))
    facts = replace(facts, wal_free_bytes=None if free_gib is None else free_gib * GIB, expected_wal_bytes=500 * GIB)
    decision = decide(BULK_LOAD, facts)
    assert "max_wal_size" not in texts(decision)
    assert "100GB" in reason(decision, "max_wal_size")
    assert reason(decision, "checkpoint_timeout").startswith("it is 1h")


def test_aurora_has_no_checkpoints() -> None:
    """Its sessions may still build indexes in memory."""
    facts = replace(FACTS, flavour=Flavour(kind="aurora", name="Amazon Aurora"))
    decision = decide(BULK_LOAD, facts)
    assert texts(decision) == {"maintenance_work_mem": "1GB"}
    assert not decision.leased
    assert "Aurora" in reason(decision, "max_wal_size")


def test_command_line_stays() -> None:
    """ALTER SYSTEM would write a line that counts for nothing."""
    facts = with_setting(FACTS, state("max_wal_size", "1024", "MB", source="command line"))
    decision = decide(BULK_LOAD, facts)
    assert "command line" in reason(decision, "max_wal_size")
    assert "max_wal_size" not in texts(decision)


def test_slots_and_archiver_are_told() -> None:
    """They keep WAL beyond max_wal_size."""
    slot = Slot(
        name="gone",
        kind="physical",
        database=None,
        is_active=False,
        wal_status="extended",
        retained_bytes=9 * GIB,
        unconfirmed_bytes=None,
        safe_bytes=None,
    )
    archiver = Archiver(
        archived=1, failed=1, last_archived_at_s=1.0, last_failed_at_s=2.0, last_failed="0000A", lag_bytes=None
    )
    notes = " ".join(decide(BULK_LOAD, replace(FACTS, slots=(slot,), archiver=archiver)).notes)
    assert "slot gone" in notes
    assert "archiving WAL fails since 0000A" in notes


def test_missing_rights_are_named_as_grants() -> None:
    """Each of them, and none that is there."""
    rights = replace(
        RIGHTS, is_superuser=False, reads_settings=False, reads_files=False, may_reload=False, may_record=False
    )
    facts = replace(FACTS, rights=rights)
    for one in DEFAULTS:
        facts = with_setting(facts, replace(one, may_alter_system=False))
    remedy = decide(BULK_LOAD, facts).remedy
    assert remedy is not None
    assert 'GRANT ALTER SYSTEM ON PARAMETER max_wal_size, checkpoint_timeout TO "loader";' in remedy
    assert remedy.count("GRANT") == 5
    assert "In database postgres: GRANT ALTER SYSTEM" in remedy
    assert "penstock init --grant loader" in remedy
    old = decide(BULK_LOAD, replace(facts, version_num=140_000))
    assert "superuser" in (old.remedy or "")


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        (replace(FACTS, is_in_recovery=True), "standby"),
        (replace(FACTS, managers=(Manager(name="Patroni", told_by="x", change="patronictl"),)), "Patroni manages"),
        (replace(FACTS, flavour=Flavour(kind="cloud-sql", name="Google Cloud SQL")), "Google Cloud SQL"),
        (replace(FACTS, rights=replace(RIGHTS, allows_alter_system=False)), "allow_alter_system"),
    ],
)
def test_who_may_not_be_changed_is_told(facts: SettingsFacts, words: str) -> None:
    """With a remedy."""
    decision = decide(BULK_LOAD, facts)
    assert words in (decision.obstacle or "")
    assert decision.remedy


def test_small_loads_are_told_by_size_alone() -> None:
    """And unknown sizes are no small ones."""
    assert is_too_small(1024)
    assert not is_too_small(GIB)
    assert not is_too_small(None)


@pytest.mark.parametrize(("expected_gib", "is_worth_it"), [(None, False), (0.5, False), (0.6, True), (50, True)])
def test_fewer_checkpoints_pay_where_wal_would_trigger_one(expected_gib: float | None, is_worth_it: bool) -> None:
    """1 GB of max_wal_size lets WAL trigger one after 0.53 GB."""
    facts = replace(FACTS, expected_wal_bytes=None if expected_gib is None else int(expected_gib * GIB))
    assert pays(decide(BULK_LOAD, facts), facts) is is_worth_it


@pytest.mark.parametrize("refusal", [each for each in REFUSALS if each.value is not None], ids=lambda each: each.name)
def test_dangerous_values_are_refused_with_the_reason(refusal: Refusal) -> None:
    """As values on the command line; no profile has one."""
    name, value = refusal.name, "" if refusal.value == "empty" else refusal.value
    with pytest.raises(UsageError) as caught:
        parse_assignments([f"{name.upper()}={value}"])
    assert caught.value.detail
    assert name not in {one.name for profile in PROFILES.values() for one in profile.values}


def test_other_spellings_of_off_are_refused() -> None:
    """PostgreSQL takes them all."""
    for spelling in ("false", "NO", "'0'"):
        with pytest.raises(UsageError):
            refuse_value("fsync", spelling)
    refuse_value("fsync", "on")


@pytest.mark.parametrize(
    "text", ["max_wal_size", "max_wal_size=x", "max_wal_size=1", "max_wal_size=5min", "work_mem=1GB"]
)
def test_what_is_no_lease_is_a_usage_error(text: str) -> None:
    """No such setting, unit or value."""
    with pytest.raises(UsageError):
        parse_assignments([text])
