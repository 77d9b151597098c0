"""The recordings of the last loads, which are kept in a folder of the user."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path

from penstock.core.errors import SourceError
from penstock.core.newfile import open_own_folder

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


@contextmanager
def make_room(folder: Path, now: datetime) -> Iterator[tuple[str, int]]:
    """Provide the name of a new recording, and a descriptor of its folder. The folder must be this user's own.

    Remove the oldest recordings, so that 20 are kept. Raises SourceError. The names begin with the time, so they sort
    by age.
    """
    with _opening(folder, "keep a recording in", creates=True) as opened:
        for old in _recordings_in(opened)[: 1 - _KEPT]:
            # Another load may have removed the recording.
            with suppress(FileNotFoundError):
                os.unlink(old, dir_fd=opened)
        yield f"{now:%Y%m%dT%H%M%S.%f}-{os.getpid()}{SUFFIX}", opened


def newest_recording(folder: Path) -> Path:
    """Return the newest recording in a folder of this user's own. Raises SourceError if there is none."""
    found: list[str] = []
    if os.path.isdir(folder):  # noqa: PTH112 (pathlib raises an error if a folder above may not be searched)
        with _opening(folder, "read recordings in", creates=False) as opened:
            found = _recordings_in(opened)
    if not found:
        raise SourceError(
            f'there is no recording in "{folder}"',
            hint="A load that takes longer than two seconds leaves one; penstock watch --record FILE writes others.",
        )
    return folder / found[-1]


@contextmanager
def _opening(folder: Path, what: str, *, creates: bool) -> Iterator[int]:
    opened = None
    try:
        if creates:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        opened = open_own_folder(folder)
        yield opened
    except OSError as exc:
        raise SourceError(
            f'could not {what} "{folder}": {exc.strerror}', hint="Name a folder of yours with PENSTOCK_HOME."
        ) from exc
    finally:
        if opened is not None:
            os.close(opened)


def _recordings_in(opened: int) -> list[str]:
    return sorted(name for name in os.listdir(opened) if name.endswith(SUFFIX) and not name.startswith("."))


def list_recordings(folder: Path) -> list[Path]:
    """Return the recordings, oldest first."""
    return sorted(folder.glob(f"*{SUFFIX}"))
