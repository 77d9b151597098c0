"""Reads and writes the state file of a lab, which is written before any part of the lab is started.

HOME/labs/NAME/lab.json       its shape, settings, members, and which members stay down
HOME/labs/NAME/processes/     records and logs of processes that are not servers, see processes.py
HOME/labs/NAME/volumes/       the files of throttled volumes and of local storage, see lab/volumes.py
HOME/labs/NAME/s3/, calls/, postgresql/  with --s3, see topology/s3.py
HOME/labs/NAME/MEMBER/        a server's home or a receiver's segments
HOME/labs/.lock               held by a command that changes any lab
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from penstock.core.errors import LabError, UsageError
from penstock.core.slotted import slotted
from penstock_lab.topology.shapes import Parameters, Shape, TopologyMember

_FORMAT = 1
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,31}")

# The stage of a lab. If it is not "up", a command on the lab was interrupted.
Stage = Literal["starting", "up", "failing over"]


@slotted
class LabState:
    """The topology, the members and the options of a lab, as its state file has them."""

    name: str
    shape: Shape
    parameters: Parameters
    zone_latency_s: float
    bin_dir: Path
    major: int
    stage: Stage
    members: tuple[TopologyMember, ...]
    # Describes the volume of each server's data. None means the machine's own disk.
    volume: str | None = None
    # The size of a second device, None if there is no such device.
    local_storage_bytes: int | None = None
    # The memory of all servers together, None if it is not limited.
    memory_bytes: int | None = None
    # The port of the lab's S3, None if it has no S3.
    s3_port: int | None = None
    # The members that were killed and stay down until they are healed.
    down: tuple[str, ...] = ()

    @property
    def has_s3(self) -> bool:
        """Return whether the lab has an S3 and its servers have the extension aws_s3."""
        return self.s3_port is not None

    @property
    def primary(self) -> TopologyMember:
        """Return the member that takes writes."""
        return next(member for member in self.members if member.kind == "primary")

    @property
    def others(self) -> tuple[TopologyMember, ...]:
        """Return the members that receive the primary's WAL."""
        return tuple(member for member in self.members if member.kind != "primary")

    @property
    def zones(self) -> tuple[str, ...]:
        """Return the zones that have members."""
        return tuple(sorted({member.zone for member in self.members if member.zone is not None}))


@dataclass(frozen=True, slots=True)
class LabFiles:
    """The paths of the files and directories of one lab."""

    home: Path
    name: str

    @property
    def folder(self) -> Path:
        """Return the lab's directory, which `down` removes."""
        return self.home / "labs" / self.name

    @property
    def copies(self) -> Path:
        """Return the directory of copied programs, which all servers below the home share."""
        return self.home / "postgresql"

    @property
    def _state(self) -> Path:
        return self.folder / "lab.json"

    def read(self) -> LabState | None:
        """Return the saved state, or None if there is no lab. Raises LabError if the state file cannot be read."""
        try:
            fields = json.loads(self._state.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        except ValueError as error:
            raise self._unreadable(str(error)) from error
        if fields.pop("format", None) != _FORMAT:
            raise self._unreadable(f"it is not of format {_FORMAT}")
        return _to_state(fields)

    def write(self, state: LabState) -> None:
        """Save the state of a lab durably, completely or not at all."""
        fields = {"format": _FORMAT, **asdict(state), "bin_dir": str(state.bin_dir)}
        write_durably(self._state, json.dumps(fields, indent=1))

    def _unreadable(self, reason: str) -> LabError:
        return LabError(
            f'cannot read the state file of lab "{self.name}"',
            detail=f'"{self._state}": {reason}',
            hint=f"Remove the lab with penstock lab down {self.name}.",
        )


def check_name(name: str) -> None:
    """Raise UsageError if the name of a lab cannot be the name of a directory."""
    if not _NAME.fullmatch(name):
        raise UsageError(
            f'"{name}" is not a valid lab name',
            hint="Use up to 32 lower-case letters, digits, hyphens and underscores.",
        )


def lab_names(home: Path) -> list[str]:
    """Return the names of the labs whose directories exist, including those that are only partly created."""
    folder = home / "labs"
    return sorted(path.name for path in folder.iterdir() if is_lab(path)) if folder.is_dir() else []


def is_lab(folder: Path) -> bool:
    """Return whether a folder was made for a lab: it has a state file, or nothing yet. A symbolic link is no lab."""
    if folder.is_symlink() or not folder.is_dir():
        return False
    names = {part.name for part in folder.iterdir()}
    return not names or bool(names & {"lab.json", "lab.json.new"})


def write_durably(path: Path, text: str) -> None:
    """Write a small file durably: after a crash it is complete or does not exist."""
    unfinished = path.with_name(f"{path.name}.new")
    with unfinished.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    unfinished.replace(path)


def _to_state(fields: Mapping[str, object]) -> LabState:
    known = dict(fields)
    known["bin_dir"] = Path(str(known["bin_dir"]))
    known["members"] = tuple(TopologyMember(**member) for member in known["members"])  # type: ignore[attr-defined]
    known["down"] = tuple(known["down"])  # type: ignore[arg-type]
    return LabState(**known)  # type: ignore[arg-type]
