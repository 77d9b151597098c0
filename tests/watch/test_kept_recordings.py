"""Recordings of every format that penstock has written can be read by each command that reads recordings."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from penstock.core.zstd import zstd
from penstock.watch.values import FORMAT, RecordingHeader, Sample, SessionSample
from support.recorded import read_whole

if TYPE_CHECKING:
    from collections.abc import Callable

    from support.command import Finished

# A folder for each format, with the recordings of real runs: of a server by penstock watch, and of a load.
_FOLDER = Path(__file__).parents[1] / "recordings"
_KEPT = sorted(_FOLDER.glob("*/*.recording"))


@pytest.mark.part("rest")
@pytest.mark.parametrize("path", _KEPT, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_kept_recording_is_read_by_every_command(penstock: Callable[..., Finished], path: Path, tmp_path: Path) -> None:
    """To its end, and with what was found when it was written."""
    recording, samples = read_whole(path)
    assert (recording.is_whole, recording.load is not None) == (True, path.stem == "load")
    assert len(samples) >= 3
    assert any(session.wait_event for sample in samples for session in sample.sessions)
    found = penstock("diagnose", str(path), "--json")
    assert (found.code, found.object["is_whole"]) == (0, True)
    stored = penstock("storage", "plan", "--volume", "gp3:100GiB:3000:125", "--recording", str(path), "--json")
    assert (stored.code, stored.object["demand"] is not None) == (0, True)
    assert penstock("commits", "--recording", str(path), "--json").code == 0
    page = tmp_path / "page.html"
    assert penstock("report", str(path), "-o", str(page)).code == 0
    assert "<svg" in page.read_text("utf-8")


def test_format_of_today_is_kept_with_all_its_fields() -> None:
    """If this fails after a change of the format, keep recordings of the new one beside the others."""
    names = {path.stem for path in (_FOLDER / FORMAT).iterdir()}
    assert names == {"load", "watch"}
    for path in (_FOLDER / FORMAT).iterdir():
        header, sample, *_ = map(json.loads, zstd.decompress(path.read_bytes()).splitlines())
        assert header["penstock_recording"] == FORMAT
        assert {each.name for each in fields(RecordingHeader)} <= set(header)
        assert {each.name for each in fields(Sample)} == set(sample["sample"])
        for session in sample["sample"]["sessions"]:
            assert {each.name for each in fields(SessionSample)} == set(session)
