"""The recordings of the last loads, which are kept in a folder of the user."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from pathlib import Path

from penstock.core.errors import SourceError

# How many recordings are kept.
_KEPT = 20
SUFFIX = ".recording"


def recordings_folder(environment: Mapping[str, str]) -> Path:
    """Return the folder of this user's recordings: in PENSTOCK_HOME if that is set, otherwise in XDG_STATE_HOME.

    A relative path in XDG_STATE_HOME is ignored, as the XDG specification requires.
    """
    if chosen := environment.get("PENSTOCK_HOME"):
        return Path(chosen).expanduser() / "recordings"
    state_home = Path(environment.get("XDG_STATE_HOME", ""))
    base = state_home if state_home.is_absolute() else Path(environment.get("HOME", "/")) / ".local" / "state"
    return base / "penstock" / "recordings"


def make_room(folder: Path, now: datetime) -> Path:
    """Return the path of a new recording. Remove the oldest recordings, so that 20 are kept. Raises SourceError.

    The names begin with the time, so they sort by age.
    """
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for old in list_recordings(folder)[: 1 - _KEPT]:
            # Another load may have removed the recording.
            with suppress(FileNotFoundError):
                old.unlink()
    except OSError as exc:
        raise SourceError(f'could not keep a recording in "{folder}": {exc.strerror}') from exc
    return folder / f"{now:%Y%m%dT%H%M%S.%f}-{os.getpid()}{SUFFIX}"


def newest_recording(folder: Path) -> Path:
    """Return the newest recording in the folder. Raises SourceError if there is none."""
    found = list_recordings(folder)
    if not found:
        raise SourceError(
            f'there is no recording in "{folder}"',
            hint="A load that takes longer than two seconds leaves one; penstock watch --record FILE writes others.",
        )
    return found[-1]


def list_recordings(folder: Path) -> list[Path]:
    """Return the recordings, oldest first."""
    return sorted(folder.glob(f"*{SUFFIX}"))
