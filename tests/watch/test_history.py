"""A history: hourly recordings in a folder, the old ones removed, and a part of it read as one recording."""

from __future__ import annotations

import os
import random
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from penstock.core.errors import SourceError
from penstock.watch.history import History, read_history
from penstock.watch.kept import list_recordings
from penstock.watch.recordings import Recorder
from support import made_samples
from support.small_disk import small_disk

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.watch.values import Sample

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount a small disk")

HOUR_S = 3600.0
NOON_S = datetime(2026, 11, 24, 12, tzinfo=UTC).timestamp()


class Clock:
    """A clock that the test moves."""

    def __init__(self) -> None:
        self.now_s = NOON_S

    def __call__(self) -> float:
        """Return the time that the test has set."""
        return self.now_s


def write_hours(folder: Path, hours: int, *, keep_s: float, every_s: float = 600) -> None:
    """Write a history of some hours, a sample each ten minutes."""
    clock = Clock()
    with History(folder, lambda: made_samples.HEADER, keep_s=keep_s, clock=clock) as history:
        for number in range(int(hours * HOUR_S / every_s)):
            clock.now_s = NOON_S + number * every_s
            history.write(made_samples.sample(number * every_s))


def test_each_hour_has_a_recording_and_old_ones_are_removed(tmp_path: Path) -> None:
    """Of ten hours with three to keep, what began up to four hours before the last hour is left."""
    write_hours(tmp_path, 10, keep_s=3 * HOUR_S)
    names = [path.name[:11] for path in list_recordings(tmp_path)]
    assert names == ["20261124T17", "20261124T18", "20261124T19", "20261124T20", "20261124T21"]


def test_a_part_is_read_across_recordings(tmp_path: Path) -> None:
    """Samples from 13:50 to 14:20 come from two files, in order, on one scale of time."""
    write_hours(tmp_path, 4, keep_s=24 * HOUR_S)
    since_s = NOON_S + 2 * HOUR_S - 600
    found = read_history(list_recordings(tmp_path), since_s, since_s + 1800)
    samples = list(found.samples)
    began_s = datetime.fromisoformat(found.header.started_at).timestamp()
    assert [began_s + sample.at_s - since_s for sample in samples] == pytest.approx([0, 600, 1200, 1800])
    # What is printed of this time begins where it begins, and not where the recording does.
    assert began_s == since_s


def test_settings_are_those_of_the_last_hour(tmp_path: Path) -> None:
    """The server was restarted with another max_wal_size after the first hour."""
    clock, settings = Clock(), {"max_wal_size": "1GB"}
    with History(
        tmp_path, lambda: replace(made_samples.HEADER, settings=dict(settings)), keep_s=24 * HOUR_S, clock=clock
    ) as history:
        history.write(made_samples.sample(0))
        settings["max_wal_size"] = "8GB"
        clock.now_s = NOON_S + HOUR_S
        history.write(made_samples.sample(HOUR_S))
    found = read_history(list_recordings(tmp_path), NOON_S, clock.now_s + 600)
    assert found.header.settings == {"max_wal_size": "8GB"}
    assert len(list(found.samples)) == 2


def test_empty_file_does_not_hide_the_others(tmp_path: Path) -> None:
    """A file whose writer was killed before it wrote anything has no samples; those of the other files are read."""
    write_hours(tmp_path, 2, keep_s=24 * HOUR_S)
    (tmp_path / "20261124T123000.000000.recording").touch()
    assert len(list(read_history(list_recordings(tmp_path), NOON_S, NOON_S + 2 * HOUR_S).samples)) == 12


@pytest.mark.parametrize("started_at", ["yesterday", "2026-11-24T12:00:00"])
def test_recording_without_a_time_is_refused(tmp_path: Path, started_at: str) -> None:
    """Its header has no time, or one without a time zone, which cannot be compared with --from."""
    path = tmp_path / "odd.recording"
    with Recorder(path, replace(made_samples.HEADER, started_at=started_at)) as recorder:
        recorder.write(made_samples.sample(0.0))
    with pytest.raises(SourceError):
        read_history([path], 0, NOON_S)


def test_times_without_samples_are_an_error(tmp_path: Path) -> None:
    """Before the first recording there is nothing to read."""
    write_hours(tmp_path, 1, keep_s=24 * HOUR_S)
    with pytest.raises(SourceError):
        read_history(list_recordings(tmp_path), NOON_S - 600, NOON_S - 300)


@pytest.mark.parametrize("other", [{"server": "host=db2"}, {"database": "crm"}])
def test_recordings_of_two_servers_are_refused(tmp_path: Path, other: dict[str, str]) -> None:
    """Counters of two servers, or databases, do not belong to one scale; an hour of one of them is read."""
    write_hours(tmp_path, 1, keep_s=24 * HOUR_S)
    clock = Clock()
    clock.now_s = NOON_S + HOUR_S
    with History(tmp_path, lambda: replace(made_samples.HEADER, **other), keep_s=24 * HOUR_S, clock=clock) as history:
        history.write(made_samples.sample(0))
    with pytest.raises(SourceError, match="several servers or databases"):
        read_history(list_recordings(tmp_path), NOON_S, clock.now_s + 600)
    after = read_history(list_recordings(tmp_path), clock.now_s + 1, clock.now_s + 600)
    assert {name: getattr(after.header, name) for name in other} == other


def test_recordings_that_are_not_of_a_history_are_kept(tmp_path: Path) -> None:
    """A load's recording and one that the user named stay in the folder, however old they are."""
    others = [tmp_path / "20200101T000000.000000-4242.recording", tmp_path / "before.recording"]
    for path in others:
        path.touch()
    write_hours(tmp_path, 3, keep_s=HOUR_S)
    assert all(path.exists() for path in others)


def index_sample(at_s: float, **reads: int) -> Sample:
    """Return a sample with the blocks read of some indexes."""
    rows = tuple({"schemaname": "public", "indexrelname": name, "idx_blks_read": read} for name, read in reads.items())
    return replace(made_samples.sample(at_s), counters={"pg_statio_user_indexes": rows})


def reads_of(sample: Sample) -> dict[object, object]:
    """Return the blocks read of each index in a sample."""
    return {row["indexrelname"]: row["idx_blks_read"] for row in sample.counters["pg_statio_user_indexes"]}


@pytest.mark.parametrize("second_s", [600.0, HOUR_S])
def test_a_part_begins_with_the_rows_that_were_known(tmp_path: Path, second_s: float) -> None:
    """An index that has not changed since an earlier sample, or hour, has its counter in the first sample of a part."""
    clock = Clock()
    with History(tmp_path, lambda: made_samples.HEADER, keep_s=24 * HOUR_S, clock=clock) as history:
        history.write(index_sample(0, a=1000, b=2000))
        for at_s, reads in ((second_s, {"a": 1001}), (second_s + 600, {"b": 2002})):
            clock.now_s = NOON_S + at_s
            history.write(index_sample(at_s, **reads))
    first, last = read_history(list_recordings(tmp_path), NOON_S + second_s, clock.now_s).samples
    assert reads_of(first) == {"a": 1001, "b": 2000}
    assert reads_of(last) == {"b": 2002}


@pytest.mark.part("rest")
@needs_root
def test_full_disk_drops_the_oldest_recording(tmp_path: Path) -> None:
    """On a small disk the history goes on: the oldest recordings go, and what is left can be read."""
    with small_disk(2 * 1024 * 1024) as disk:
        clock = Clock()
        with History(disk.path / "h", lambda: made_samples.HEADER, keep_s=1000 * HOUR_S, clock=clock) as history:
            first = list_recordings(disk.path / "h")[0]
            for number in range(1200):
                clock.now_s += 60
                history.write(noisy_sample(number))
        pieces = list_recordings(disk.path / "h")
        assert first not in pieces
        last = read_history(pieces[-1:], 0, clock.now_s)
        assert list(last.samples)


def test_two_do_not_write_one_history(tmp_path: Path) -> None:
    """The second would remove what the first keeps for longer, and every sample would be there twice."""
    with (
        History(tmp_path, lambda: made_samples.HEADER, keep_s=HOUR_S),
        pytest.raises(SourceError, match="another penstock watch"),
    ):
        History(tmp_path, lambda: made_samples.HEADER, keep_s=HOUR_S)
    with History(tmp_path, lambda: made_samples.HEADER, keep_s=HOUR_S):
        pass


@pytest.mark.part("rest")
@needs_root
def test_disk_that_others_fill_costs_one_recording(tmp_path: Path) -> None:
    """The history is there for such an hour."""
    with small_disk(2 * 1024 * 1024) as disk:
        clock = Clock()
        with (
            pytest.raises(SourceError, match="No space left"),
            History(disk.path / "h", lambda: made_samples.HEADER, keep_s=1000 * HOUR_S, clock=clock) as history,
        ):
            for number in range(150):
                clock.now_s += 60
                history.write(noisy_sample(number))
            before = list_recordings(disk.path / "h")
            for number in range(150, 400):
                _fill(disk.path / "others")
                clock.now_s += 1
                history.write(noisy_sample(number))
        assert len(set(before) - set(list_recordings(disk.path / "h"))) == 1


def _fill(path: Path) -> None:
    """Take all that is free on a disk."""
    with suppress(OSError), path.open("ab", buffering=0) as file:
        while True:
            file.write(bytes(4096))


def noisy_sample(number: int) -> Sample:
    """Return a sample that compresses badly, of about 8 kB."""
    rng = random.Random(number)
    rows = tuple({"datname": f"{rng.getrandbits(4000):x}"} for _ in range(16))
    return replace(made_samples.sample(number * 60.0), counters={"pg_stat_database": rows})
