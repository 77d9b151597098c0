"""Samples taken beside a load: what a recording has, and that no fault of it reaches the load."""

from __future__ import annotations

import os
from datetime import datetime
from typing import TYPE_CHECKING
from unittest.mock import patch

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from penstock.core.errors import ServerError, SourceError
from penstock.diagnose.examination import examine
from penstock.diagnose.load import judge_recording
from penstock.watch.kept import list_recordings, make_room, newest_recording
from penstock.watch.recordings import read_recording
from support.loads import Loads, target, write_csv

if TYPE_CHECKING:
    from pathlib import Path

# Slow enough to be seen: each row sleeps for 2 ms.
SETUP = """
CREATE TABLE t (a int, b text);
CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(0.002); RETURN NEW; END $$;
CREATE TRIGGER slow BEFORE INSERT ON t FOR EACH ROW EXECUTE FUNCTION slow();
"""


def slow_file(folder: Path, rows: int = 500) -> Path:
    """Return a file that takes about a second to load."""
    return write_csv(folder / "slow.csv", [f"{number},x" for number in range(rows)])


def test_recording_has_samples_and_what_the_loader_counted(database18: str, tmp_path: Path) -> None:
    """And what limited it: the server. The load itself is too short for a verdict."""
    loads = Loads(database18, setup=SETUP, record=tmp_path / "r")
    outcome = loads.run(target(slow_file(tmp_path)))
    recording = read_recording(tmp_path / "r")
    samples = list(recording.samples)
    assert recording.is_whole
    assert any("penstock session" in (each.application or "") for sample in samples for each in sample.sessions)
    assert recording.load is not None
    assert recording.load.accounts == outcome.accounts
    assert outcome.diagnoses == ()
    assert judge_recording(recording, examine(recording)).diagnoses
    seconds = recording.load.accounts.sessions
    assert seconds.sending_s + seconds.finishing_s > seconds.waiting_s + seconds.encoding_s + seconds.committing_s


def test_sessions_with_a_name_of_the_user_are_those_of_the_load(database18: str, tmp_path: Path) -> None:
    """As a connection string or PGAPPNAME gives it, cut where the server cuts it."""
    named = make_conninfo(database18, application_name="nightly " + "n" * 80)
    loads = Loads(named, setup=SETUP, record=tmp_path / "r")
    loads.run(target(slow_file(tmp_path)))
    found = examine(read_recording(tmp_path / "r"))
    assert found.activity.sessions > 0


def test_load_that_is_long_and_large_enough_ends_with_its_verdict(database18: str, tmp_path: Path) -> None:
    """From any time and size on, as this load is tuned: its row trigger is what costs its time."""
    loads = Loads(database18, setup=SETUP, record=tmp_path / "r")
    loads.tune(least_verdict_s=0.1, least_verdict_bytes=1)
    first, *_ = loads.run(target(slow_file(tmp_path))).diagnoses
    assert first.share >= 1 / 3
    assert "--indexes rebuild" not in first.remedy


def test_recording_has_the_files_and_what_was_planned_and_done(database18: str, tmp_path: Path) -> None:
    """As the outcome has them, for a report."""
    loads = Loads(database18, setup=SETUP, record=tmp_path / "r")
    outcome = loads.run(target(slow_file(tmp_path)))
    recording = read_recording(tmp_path / "r")
    assert list(recording.samples)
    assert recording.load is not None
    details = recording.load.details
    assert details is not None
    assert details.files == outcome.files
    assert any("append" in cell for row in details.plan for cell in row)
    assert any("slow" in cell for row in details.plan for cell in row)
    assert any("vacuumed" in cell for row in details.done for cell in row)


def test_lost_connection_of_the_recording_leaves_the_load_alone(database18: str, tmp_path: Path) -> None:
    """Its session is terminated three times after it began; all rows are stored, and the recording can be read."""
    loads = Loads(database18, setup=SETUP, record=tmp_path / "r")
    ended: list[int] = []

    def terminate(_: object) -> None:
        if len(ended) >= 3 or not (tmp_path / "r").exists():
            return
        with psycopg.connect(database18, autocommit=True) as admin:
            found = admin.execute(
                "SELECT pid FROM pg_stat_activity"
                " WHERE application_name = 'penstock observe' AND datname = current_database()"
            ).fetchall()
            for (pid,) in found:
                admin.execute("SELECT pg_terminate_backend(%s)", [pid])
                ended.append(pid)

    outcome = loads.run(target(slow_file(tmp_path)), on_progress=terminate)
    assert outcome.rows == loads.count() == 500
    assert ended
    assert list(read_recording(tmp_path / "r").samples)


def test_recording_that_was_asked_for_and_cannot_begin_is_a_notice(database18: str, tmp_path: Path) -> None:
    """Its session is refused each time; the load goes on, and says why there is no file."""
    loads = Loads(database18, setup=SETUP, record=tmp_path / "r")
    with patch("penstock.watch.sampler.open_reader", side_effect=ServerError("no more", is_transient=True)):
        assert loads.run(target(slow_file(tmp_path))).rows == 500
    assert any("no more: the load goes on without a recording" in notice for notice in loads.notices)
    assert not (tmp_path / "r").exists()


@pytest.mark.part("rest")
def test_folder_that_cannot_be_written_is_a_notice(
    database18: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The load goes on without a recording."""
    (tmp_path / "home").write_text("a file, not a folder")
    monkeypatch.setenv("PENSTOCK_HOME", str(tmp_path / "home"))
    loads = Loads(database18, setup=SETUP, samples=True)
    assert loads.run(target(slow_file(tmp_path, 1_500))).rows == 1_500
    assert any("without a recording" in notice for notice in loads.notices)


def test_file_that_exists_is_refused_before_the_load(database18: str, tmp_path: Path) -> None:
    """--record never replaces a file."""
    (tmp_path / "r").write_text("mine")
    loads = Loads(database18, setup=SETUP, record=tmp_path / "r")
    with pytest.raises(SourceError):
        loads.run(target(slow_file(tmp_path, 1)))
    assert (tmp_path / "r").read_text() == "mine"
    assert loads.count() == 0


def test_last_twenty_recordings_are_kept(tmp_path: Path) -> None:
    """The oldest go, other files stay."""
    (tmp_path / "notes.txt").write_text("mine")
    made = []
    for minute in range(25):
        with make_room(tmp_path, datetime.fromisoformat(f"2026-11-24T03:{minute:02}:00+00:00")) as (name, _):
            made.append(tmp_path / name)
        made[-1].write_bytes(b"")
    assert list_recordings(tmp_path) == made[5:]
    assert newest_recording(tmp_path) == made[-1]
    assert (tmp_path / "notes.txt").exists()


@pytest.fixture
def linked(tmp_path: Path) -> Path:
    """Provide a folder with recordings, to which the folder of the user's recordings is a link."""
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    for number in range(10, 40):
        (theirs / f"2000{number}.recording").write_text("theirs")
    (tmp_path / "recordings").symlink_to(theirs)
    return theirs


def test_a_folder_that_another_user_has_chosen_is_not_used(linked: Path) -> None:
    """A link, or another user's folder: no recording there is removed or read."""
    link = linked.parent / "recordings"
    now = datetime.fromisoformat("2026-11-24T03:00:00+00:00")
    with pytest.raises(SourceError, match="it is a symbolic link"), make_room(link, now):
        pass
    with pytest.raises(SourceError, match="it is a symbolic link"):
        newest_recording(link)
    if os.geteuid() == 0:
        os.chown(linked, 1234, -1)
        with pytest.raises(SourceError, match="it belongs to another user"), make_room(linked, now):
            pass
    assert len(list_recordings(linked)) == 30


@pytest.mark.part("rest")
def test_a_load_goes_on_if_the_folder_of_recordings_is_a_link(
    database18: str, tmp_path: Path, linked: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a warning, and without a recording."""
    monkeypatch.setenv("PENSTOCK_HOME", str(tmp_path))
    loads = Loads(database18, setup=SETUP, samples=True)
    assert loads.run(target(slow_file(tmp_path, 1_500))).rows == 1_500
    assert any("the load goes on without a recording" in notice for notice in loads.notices)
    assert len(list_recordings(linked)) == 30
