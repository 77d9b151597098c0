"""Progress: what is drawn is true, fits the terminal and lines up."""

from __future__ import annotations

import re
from dataclasses import replace
from io import StringIO

import pytest
from rich.console import Console

from penstock.cli.output import Messages
from penstock.core.values.accounts import StepProgress
from penstock.core.words import width_of
from penstock.loading.command.bars import Bars
from penstock.loading.command.meter import Meter
from penstock.loading.command.progress import PlainProgress, describe_progress
from penstock.loading.values.outcome import FileProgress, LoadProgress

_MB = 1_000_000

CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\r")


def _file(number: int, *, size_bytes: int | None = 100 * _MB, is_done: bool = False) -> FileProgress:
    return FileProgress(
        uri=f"s3://bucket/a/rather/long/prefix/part-{number:04d}.tsv.gz",
        table="public.t",
        size_bytes=size_bytes,
        bytes_read=25 * _MB,
        rows=1_000_000,
        seconds=5.0,
        is_done=is_done,
    )


def _progress(*files: FileProgress, file_count: int | None = None, elapsed_s: float = 5.0) -> LoadProgress:
    sizes = [file.size_bytes for file in files]
    return LoadProgress(
        rows=sum(file.rows for file in files),
        bytes_read=sum(file.bytes_read for file in files),
        bytes_copied=500 * _MB,
        size_bytes=None if None in sizes else sum(size or 0 for size in sizes),
        elapsed_s=elapsed_s,
        sessions=2,
        files=files,
        file_count=file_count or len(files),
    )


def _drawn(*shown: LoadProgress, width: int = 120) -> list[str]:
    """Return what is on a terminal once the last progress was shown."""
    screen = StringIO()
    with Bars(Console(file=screen, width=width, force_terminal=True, color_system=None)) as bars:
        for progress in shown:
            screen.truncate(screen.seek(0))
            bars.show(progress)
        # Control sequences move the cursor to the first line.
        return [line.rstrip() for line in CONTROL.sub("", screen.getvalue()).splitlines()]


@pytest.mark.parametrize("width", [40, 60, 80, 120, 200])
def test_lines_fit_the_terminal(width: int) -> None:
    """Whatever its width, none wraps."""
    lines = _drawn(_progress(_file(1), _file(2), _file(3)), width=width)
    assert len(lines) == 1 + 3 + 1
    assert all(width_of(line) <= width for line in lines)


def test_total_tells_rates_share_and_time_left() -> None:
    """75 MB of 300 MB in 5 s: 15 MB/s, a quarter, 15 s to go."""
    total, *_, status = _drawn(_progress(_file(1), _file(2), _file(3)))
    assert total.startswith("in all ")
    assert total.endswith(" 25 %  3,000,000 rows  15.0 MB/s  15 s left")
    assert status == "5.00 s, 2 sessions, 100 MB/s sent, 0 of 3 files done"


def test_time_left_is_told_to_be_that_before_a_rebuild() -> None:
    """How long one takes nobody knows before."""
    progress = replace(_progress(_file(1), _file(2), _file(3)), to_rebuild=2)
    assert _drawn(progress)[-1].endswith(", 0 of 3 files done, then 2 rebuilds")
    assert describe_progress(progress, Meter().read(progress)).endswith("15 s left, 2 sessions, then 2 rebuilds")


def test_unknown_size_has_no_share_and_no_time_left() -> None:
    """Standard input: only what is known."""
    (line, _) = _drawn(_progress(_file(1, size_bytes=None)))
    assert "part-0001.tsv.gz" in line
    assert "%" not in line
    assert "left" not in line


def test_few_open_files_have_bars_of_their_own() -> None:
    """Those that are done need none."""
    files = [_file(number, is_done=number < 3) for number in range(13)]
    lines = _drawn(_progress(*files))
    assert "part-0003.tsv.gz" in lines[1]
    assert lines[1].endswith(" 25 %  1,000,000 rows")
    assert len(lines) == 1 + 4 + 1


def test_files_that_are_done_give_way_to_others() -> None:
    """Their bars go."""
    before = _progress(_file(1), _file(2))
    lines = _drawn(before, _progress(_file(1, is_done=True), _file(2), elapsed_s=6.0))
    assert len(lines) == 1 + 1 + 1
    assert "part-0002" in lines[1]


def test_only_commits_left_is_said() -> None:
    """After all rows are sent, no remaining time is shown."""
    lines = _drawn(_progress(_file(1, is_done=True), _file(2, is_done=True)))
    assert lines[-1].startswith("committing, ")
    assert "left" not in lines[0]


def _rebuilding(elapsed_s: float) -> LoadProgress:
    return replace(
        _progress(_file(1, is_done=True), elapsed_s=elapsed_s),
        activity="rebuilding indexes, 1 of 3 done",
        steps=(
            StepProgress(name="t_pkey", phase="scanning", fraction=0.5),
            StepProgress(name="t_note_idx", phase="sorting", fraction=None),
        ),
    )


def test_indexes_that_are_made_have_bars_of_their_own() -> None:
    """How far each is in its phase; rates of what was loaded before are no news."""
    total, key, index, status = _drawn(_rebuilding(12.0))
    assert "MB/s" not in total
    assert key.startswith("t_pkey ")
    assert key.split()[-3:] == ["50", "%", "scanning"]
    assert index.split()[-1] == "sorting"
    assert "%" not in index
    assert status == "rebuilding indexes, 1 of 3 done, 12.0 s"


def test_plain_progress_tells_of_indexes_every_ten_seconds(capsys: pytest.CaptureFixture[str]) -> None:
    """And at once when one is done."""
    progress = PlainProgress(Messages(is_quiet=False))
    for elapsed_s in (3.0, 4.0, 14.0):
        progress.show(_rebuilding(elapsed_s))
    line = "progress: rebuilding indexes, 1 of 3 done: t_pkey scanning 50 %, t_note_idx sorting"
    assert capsys.readouterr().err.splitlines() == [line, line]


def test_plain_progress_tells_every_ten_seconds_what_a_load_waits_for(capsys: pytest.CaptureFixture[str]) -> None:
    """Although the standby that it waits for is further behind each second: an hour of waiting fills no log."""
    plain = PlainProgress(Messages())
    for second in range(1, 35):
        behind = f"waiting for standby r1, which is {second} s behind"
        plain.show(replace(_progress(_file(1), elapsed_s=float(second)), activity=behind))
    assert len(capsys.readouterr().err.splitlines()) == 3


def test_meter_follows_a_change_of_pace() -> None:
    """What was long ago does not count."""
    meter = Meter()
    for second in range(1, 31):
        meter.read(_progress(_file(1), elapsed_s=float(second)))
    assert meter.read(_progress(_file(1), elapsed_s=31.0)).read_rate == 0


def test_time_before_the_first_byte_is_no_part_of_the_pace() -> None:
    """A load that is claimed for 15 seconds, and then reads a quarter in a second, has three seconds left."""
    meter = Meter()
    meter.read(replace(_progress(_file(1), elapsed_s=15.0), bytes_read=0, bytes_copied=0))
    assert meter.read(_progress(_file(1), elapsed_s=16.0)).left_s == pytest.approx(3.0)


def test_plain_progress_speaks_every_ten_seconds(capsys: pytest.CaptureFixture[str]) -> None:
    """First after ten; time is the load's own."""
    plain = PlainProgress(Messages())
    for tenths in range(250):
        plain.show(_progress(_file(1), elapsed_s=tenths / 10))
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 2
    assert lines[0] == "progress: 1,000,000 rows, 2.5 MB/s read, 50.0 MB/s sent, 25 %, 30 s left, 2 sessions"


def test_records_that_are_staged_are_not_called_rows() -> None:
    """They are in no table yet, on a terminal and in a log."""
    progress = replace(_progress(_file(1), _file(2)), is_staged=True)
    assert "2,000,000 records staged" in describe_progress(progress, Meter().read(progress))
    lines = _drawn(progress)
    assert lines[0].split("  ")[-3].strip() == "2,000,000 records staged"
    assert lines[1].endswith("1,000,000 records staged")
