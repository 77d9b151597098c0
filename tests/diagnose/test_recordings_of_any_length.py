"""A recording is diagnosed as it is read: what is kept does not grow with its samples."""

from __future__ import annotations

import tracemalloc
from typing import TYPE_CHECKING

from penstock.diagnose.examination import diagnose
from penstock.watch.recordings import Recorder, read_recording
from support.made_samples import HEADER, database, sample, session

if TYPE_CHECKING:
    from pathlib import Path

_SESSIONS = 8
_WAITS = ("IO:WalSync", "IO:BufFileRead", "Lock:tuple", None)


def write(path: Path, count: int) -> Path:
    """Write samples of eight sessions whose statements' ages all differ, with counters at each fifth."""
    with Recorder(path, HEADER) as recorder:
        for number in range(count):
            busy = [
                session(_WAITS[(number + pid) % 4], pid=pid, query_s=number + pid / 7, transaction_s=number + pid / 3)
                for pid in range(_SESSIONS)
            ]
            counters = {} if number % 5 else database(number, number)
            recorder.write(sample(number / 5, *busy, xid=number, wal=number, interval_s=0.2, counters=counters))
    return path


def peak_bytes(path: Path) -> int:
    """Return the most memory that diagnosing a recording has taken at once."""
    tracemalloc.start()
    try:
        diagnose(read_recording(path))
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_memory_of_a_diagnosis_grows_by_less_than_400_bytes_a_sample(tmp_path: Path) -> None:
    """Two hours at 0.2 s are 36,000 samples: 14 MB. Eight sessions of a sample that is kept take 3 kB."""
    count = 4_000
    diagnose(read_recording(write(tmp_path / "warm", 10)))
    short, long = (peak_bytes(write(tmp_path / str(size), size)) for size in (count // 4, count))
    assert (long - short) / (count - count // 4) < 400
