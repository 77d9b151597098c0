"""Recordings: written as they are sampled, read as far as they were written."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import tracemalloc
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from penstock import __version__
from penstock.core.errors import SourceError
from penstock.core.values.device import VolumeLimits
from penstock.core.values.server import Unread
from penstock.core.zstd import zstd
from penstock.watch.recordings import Recorder, read_recording
from penstock.watch.values import Progress, Sample, SessionSample
from support import made_samples
from support.recorded import read_whole

if TYPE_CHECKING:
    import random

HEADER = replace(
    made_samples.HEADER,
    clock_ahead_s=0.25,
    settings={"synchronous_commit": "on"},
    unread=(Unread(what="pg_stat_statements", why="not installed"),),
)


def make_sample(number: int) -> Sample:
    """Return a sample with something in each field."""
    session = SessionSample(
        pid=number,
        backend_type="client backend",
        leader_pid=None,
        database="shop",
        user="ann",
        application="app é",
        state="active",
        wait_event_type="IO",
        wait_event="WalSync",
        query_id=-(2**62),
        query="SELECT ?",
        query_s=0.5,
        transaction_s=0.75,
        xid_age=3,
        blocked_by=(1, 0),
        cpu_s=1.25,
    )
    return Sample(
        at_s=number / 10,
        interval_s=0.1,
        sessions=(session,) * (number % 3),
        progress=Progress(wal_bytes=number * 1000, next_xid=number),
        own_commits=number,
        counters={"pg_stat_database": ({"datname": "shop", "xact_commit": number},)},
        host_busy_cpus=1.5,
    )


def write(path: Path, samples: list[Sample]) -> None:
    """Write a recording that ended as it should."""
    with Recorder(path, HEADER) as recorder:
        for sample in samples:
            recorder.write(sample)


def test_what_is_read_is_what_was_written(tmp_path: Path) -> None:
    """Header and samples, each field."""
    samples = [make_sample(number) for number in range(50)]
    write(tmp_path / "r", samples)
    recording, read = read_whole(tmp_path / "r")
    assert recording.header == HEADER
    assert read == samples
    assert recording.is_whole


@pytest.mark.part("rest")
def test_recording_cut_at_any_byte_reads_up_to_a_whole_line(tmp_path: Path, rng: random.Random) -> None:
    """A prefix of the samples, and never an error once the header is there."""
    samples = [make_sample(number) for number in range(200)]
    moments = iter(number / 2 for number in range(1000))
    with Recorder(tmp_path / "r", HEADER, clock=lambda: next(moments)) as recorder:
        for sample in samples:
            recorder.write(sample)
    whole = (tmp_path / "r").read_bytes()
    lengths = sorted(rng.sample(range(len(whole)), 300))
    read = 0
    for length in lengths:
        cut = tmp_path / "cut"
        cut.write_bytes(whole[:length])
        try:
            recording, found = read_whole(cut)
        except SourceError as error:
            assert "is not a recording" in error.message
            assert read == 0
            continue
        assert found == samples[: len(found)]
        assert not recording.is_whole
        assert len(found) >= read
        read = len(found)
    assert read > 150


@pytest.mark.part("rest")
def test_killed_writer_loses_a_second_at_most(tmp_path: Path) -> None:
    """What was written more than a second before SIGKILL is there."""
    code = (
        "import sys; from pathlib import Path; sys.path[:0] = sys.argv[2:]\n"
        "from watch.test_recordings import HEADER, make_sample\n"
        "from penstock.watch.recordings import Recorder\n"
        "import time\n"
        "recorder = Recorder(Path(sys.argv[1]), HEADER)\n"
        "for number in range(10_000):\n"
        "    began = time.monotonic(); recorder.write(make_sample(number))\n"
        "    print(began, time.monotonic(), flush=True); time.sleep(0.02)\n"
    )
    tests = str(Path(__file__).parents[1])
    with subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path / "r"), tests], stdout=subprocess.PIPE, text=True
    ) as writer:
        assert writer.stdout is not None
        written_s = [tuple(map(float, writer.stdout.readline().split())) for _ in range(120)]
        writer.send_signal(signal.SIGKILL)
    recording, found = read_whole(tmp_path / "r")
    assert not recording.is_whole
    # The line is flushed by the first one that is written a second after the last flush.
    safe = sum(ended_s <= written_s[-1][0] - 1 for _, ended_s in written_s)
    assert safe > 0
    assert len(found) >= safe


def test_fields_of_a_later_minor_format_are_left_alone(tmp_path: Path) -> None:
    """A reader takes what it knows."""
    write(tmp_path / "r", [make_sample(1)])
    lines = zstd.decompress((tmp_path / "r").read_bytes()).splitlines()
    header, sample, end = map(json.loads, lines)
    header |= {"penstock_recording": "1.7", "colour": "blue"}
    sample["sample"] |= {"colour": "red"}
    sample["sample"]["sessions"][0]["mood"] = "fine"
    later = "\n".join(map(json.dumps, [header, {"remark": "new"}, sample, end])) + "\n"
    (tmp_path / "later").write_bytes(zstd.compress(later.encode()))
    recording, found = read_whole(tmp_path / "later")
    assert found == [make_sample(1)]
    assert recording.is_whole


def test_newer_major_format_is_refused_by_name(tmp_path: Path) -> None:
    """Rather than misread, and with the version to install if the recording names it."""
    (tmp_path / "r").write_bytes(zstd.compress(b'{"penstock_recording": "2.0"}\n'))
    with pytest.raises(SourceError, match=r"has format 2\.0, which a newer penstock wrote"):
        read_whole(tmp_path / "r")
    write_lines(tmp_path / "named", {"penstock_recording": "2.1", "penstock": "7.2.0"})
    with pytest.raises(SourceError, match=r"has format 2\.1, which penstock 7\.2\.0 wrote") as caught:
        read_whole(tmp_path / "named")
    assert caught.value.hint == "Install penstock 7.2.0, or a later one."


def test_recording_names_the_penstock_that_wrote_it(tmp_path: Path) -> None:
    """A reader that does not know its format says which version does."""
    write(tmp_path / "r", [])
    header = json.loads(zstd.decompress((tmp_path / "r").read_bytes()).splitlines()[0])
    assert header["penstock"] == __version__


@pytest.mark.parametrize("content", [b"", b"a,b\n1,2\n", zstd.compress(b"1\n2\n"), zstd.compress(b"{}\n")])
def test_other_files_are_no_recordings(tmp_path: Path, content: bytes) -> None:
    """Each by name."""
    (tmp_path / "r").write_bytes(content)
    with pytest.raises(SourceError, match=r'r" is not a recording'):
        read_whole(tmp_path / "r")


def test_existing_file_is_not_replaced(tmp_path: Path) -> None:
    """Nor a link followed."""
    (tmp_path / "r").write_text("mine")
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    for name in ("r", "link"):
        with pytest.raises(SourceError, match="already exists"):
            Recorder(tmp_path / name, HEADER)
    assert (tmp_path / "r").read_text() == "mine"


def test_full_disk_is_an_error_that_names_the_recording(tmp_path: Path) -> None:
    """Not a traceback, and not silence."""
    recorder = Recorder(tmp_path / "r", HEADER)
    recorder._file.close()
    recorder._file = open("/dev/full", "wb", buffering=0)  # noqa: PTH123, SIM115
    with pytest.raises(SourceError, match=r"could not write the recording .* No space left on device"), recorder:
        recorder.write(make_sample(2))
        raise KeyboardInterrupt


@pytest.mark.parametrize(
    "damage",
    [
        '{"interval_s": "x"}', '{"interval_s": -1}', '{"at_s": NaN}', '{"at_s": null}', '{"own_commits": true}',
        '{"counters": []}', '{"counters": {"pg_stat_database": [1]}}',
        '{"counters": {"pg_stat_database": [{"datname": []}]}}',
        f'{{"counters": {{"pg_stat_database": [{{"xact_commit": {10**400}}}]}}}}',
        '{"progress": {"wal_bytes": [], "next_xid": 1}}', '{"sessions": [1]}', '{"sessions": [{}]}',
    ],
)  # fmt: skip
def test_field_of_no_use_is_an_error_that_names_the_recording(tmp_path: Path, damage: str) -> None:
    """Where it is read, rather than a traceback of who counts with it."""
    fields = asdict(make_sample(1)) | json.loads(damage)
    write_lines(tmp_path / "r", header_line(), json.dumps({"sample": fields}))
    with pytest.raises(SourceError, match=r'recording ".*r" is damaged'):
        read_whole(tmp_path / "r")


@pytest.mark.parametrize("line", ["[" * 200_000, "[]", "1", '["sample"]'])
def test_line_that_is_no_entry_is_an_error_that_names_the_recording(tmp_path: Path, line: str) -> None:
    """However deep."""
    write_lines(tmp_path / "r", header_line(), line)
    with pytest.raises(SourceError, match=r'recording ".*r" is damaged'):
        read_whole(tmp_path / "r")


@pytest.mark.parametrize("damage", [{"unread": 1}, {"cpu_count": 0}, {"settings": []}, {"version": None}])
def test_header_of_no_use_is_refused(tmp_path: Path, damage: dict[str, object]) -> None:
    """As what is no recording."""
    write_lines(tmp_path / "r", header_line() | damage)
    with pytest.raises(SourceError, match=r'r" is not a recording'):
        read_whole(tmp_path / "r")


@pytest.mark.part("rest")
def test_line_without_end_takes_no_memory_without_end(tmp_path: Path) -> None:
    """A gibibyte of zeros is 32 kB on disk."""
    with zstd.open(tmp_path / "r", "wb") as stream:
        for _ in range(1024):
            stream.write(bytes(1024 * 1024))
    tracemalloc.start()
    try:
        with pytest.raises(SourceError, match=r'r" is not a recording, or is damaged'):
            read_whole(tmp_path / "r")
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 600 * 1024 * 1024


def header_line() -> dict[str, object]:
    """Return a recording's first entry."""
    return {"penstock_recording": "1.0", **asdict(HEADER)}


def write_lines(path: Path, *lines: object) -> None:
    """Write a compressed file of lines, those that are no text as JSON."""
    texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
    path.write_bytes(zstd.compress(("\n".join(texts) + "\n").encode()))


def test_the_limits_of_a_volume_and_the_application_are_read_back(tmp_path: Path) -> None:
    """In the header, beside what is known of the server."""
    header = replace(HEADER, volume=VolumeLimits(iops=750, balance_ios=5.4e6), application="penstock load")
    with Recorder(tmp_path / "r", header):
        pass
    assert read_recording(tmp_path / "r").header == header
