"""What happens to each setting that was changed, decided from its record and the text that it has now."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from penstock.changes.store_tags import change_tags, hold_tags, read_changes, read_holds
from penstock.changes.values import SERVER, Hold, server_change
from penstock.core.values.server import ServerIdentity
from penstock.settings.kinds import SETTING, refuse_restore

SERVER_A = ServerIdentity(system_identifier=1, timeline=1, address="10.0.0.1", port=5432)


@pytest.mark.parametrize("prior", [None, "2GB"])
@pytest.mark.parametrize(("line", "is_restored"), [("4096MB", True), ("prior", False), ("3GB", False)])
def test_only_the_text_that_was_set_is_replaced(prior: str | None, line: str, is_restored: bool) -> None:
    """A text that is neither it nor the prior one is somebody else's."""
    change = server_change(SETTING, "max_wal_size", {"prior": prior, "wanted": "4096MB"}, "1")
    assert (refuse_restore(change, prior if line == "prior" else line) is None) is is_restored


def test_taken_out_by_hand_stays_out() -> None:
    """Somebody has put it right already."""
    change = server_change(SETTING, "max_wal_size", {"prior": "2GB", "wanted": "4096MB"}, "1")
    assert "was removed" in (refuse_restore(change, None) or "")


@pytest.mark.parametrize("text", ["/bin/sh", "4GB'; DROP", "5min"])
def test_planted_text_is_not_put_back(text: str) -> None:
    """Whoever can write records can make nobody set more than a number."""
    change = server_change(SETTING, "max_wal_size", {"prior": text, "wanted": "4096MB"}, "1")
    assert refuse_restore(change, "4096MB") is not None


def test_planted_name_is_not_put_back() -> None:
    """Nor anything else than what leases change."""
    change = server_change(SETTING, "archive_command", {"prior": "1GB", "wanted": "4096MB"}, "1")
    assert refuse_restore(change, "4096MB") is not None


def test_hold_is_alive_while_somebody_has_its_lock_or_it_stands() -> None:
    """Until its time is up, or it is removed."""
    hold = Hold(holder_id="1", target_oid=SERVER)
    assert not hold.is_alive
    assert Hold(holder_id="1", target_oid=SERVER, pid=1).is_alive
    assert Hold(holder_id="1", target_oid=SERVER, stands=True).is_alive


def test_hold_wants_all_of_a_table_and_what_it_names_of_the_server() -> None:
    """One that names nothing of the server is just being taken."""
    change = server_change(SETTING, "max_wal_size", {}, "1")
    assert Hold(holder_id="1", target_oid=SERVER, names=("max_wal_size",)).wants(change)
    assert not Hold(holder_id="1", target_oid=SERVER).wants(change)
    assert not Hold(holder_id="1", target_oid=7).wants(change)


def test_timeline_tells_servers_apart_and_an_address_does_not() -> None:
    """One server has several addresses."""
    other = ServerIdentity(system_identifier=1, timeline=1, address=None, port=None)
    promoted = ServerIdentity(system_identifier=1, timeline=2, address="10.0.0.1", port=5432)
    assert SERVER_A.is_same(other)
    assert not SERVER_A.is_same(promoted)


def test_tags_are_read_as_they_were_written() -> None:
    """But for what tags cannot have; tags of others are left out, and a planted id has a lock too."""
    time = datetime(2026, 11, 21, tzinfo=UTC)
    here = ServerIdentity(system_identifier=0, timeline=0, address=None, port=None, resource_id="db-A")
    hold = Hold(holder_id="ab-1", target_oid=SERVER, lock="ab1", names=("max_wal_size",), client="me", made_at=time)
    for each in (hold, Hold(holder_id="ab-2", target_oid=SERVER, lock="ab2", stands=True, made_at=time)):
        (found,) = read_holds({**hold_tags(each), "Name": "mine"})
        assert (found.holder_id, found.lock, found.names, found.stands) == (
            each.holder_id,
            each.lock,
            each.names,
            each.stands,
        )
        assert not found.is_of(here)
    change = server_change(SETTING, "max_wal_size", {"prior": None, "wanted": "4096", "source": "a b"}, "ab-1")
    (read,) = read_changes({**change_tags([change]), "penstock:change:planted": "x"})
    assert (read.kind, read.name, read.load_id) == (change.kind, change.name, "ab-1")
    assert read.record == {"prior": None, "wanted": "4096", "source": "a_b"}
    (planted,) = read_holds({"penstock:lease:no hex": "until=never"})
    assert int(planted.lock or "", 16) >= 0
