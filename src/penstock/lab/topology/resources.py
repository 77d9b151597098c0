"""Creates a lab's resources besides its processes: a volume for each server, local storage, and a memory limit."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.errors import LabError, UsageError
from penstock.lab.cluster import make_private_dir
from penstock.lab.topology.processes import Launch, Processes
from penstock.lab.volumes.cgroup import cgroup_of, create_cgroup, remove_cgroup
from penstock.lab.volumes.find import check_machine
from penstock.lab.volumes.volume import (
    VolumeFiles,
    change_throttle,
    create_image,
    daemon_argv,
    mount_volume,
    release_volumes,
)
from penstock.storage.volume import parse_volume

if TYPE_CHECKING:
    from penstock.lab.topology.state import LabState
    from penstock.lab.users import ServerUser

_EXPORT_TIMEOUT_S = 30

# No member has this name, so it is free for local storage.
_LOCAL = "local"


@dataclass(frozen=True, slots=True)
class LabResources:
    """The resources of a lab, as its state file describes them."""

    folder: Path
    state: LabState

    @property
    def cgroup(self) -> Path | None:
        """Return the control group of the lab's servers, or None if their memory is not limited."""
        return None if self.state.memory_bytes is None else cgroup_of(self.folder)

    @property
    def local_storage(self) -> Path | None:
        """Return the directory on local storage that the servers' account owns, or None without local storage."""
        return None if self.state.local_storage_bytes is None else self.folder / _LOCAL / "temp"

    def check(self) -> None:
        """Raise UsageError for a volume that is not valid, LabError if this machine cannot provide a resource."""
        options, programs = [], list[str]()
        if self.state.volume is not None:
            parse_volume(self.state.volume)
            options.append("multi-az" if self._is_mirrored else "--volume")
            programs += ["qemu-storage-daemon", "mkfs.ext4", "mount", "umount"]
        if self.state.local_storage_bytes is not None:
            if sum(member.is_server for member in self.state.members) > 1:
                # A tablespace has the same path on each server, and a server that starts removes all temporary files
                # there.
                raise UsageError(
                    f"--local-storage is not possible with {self.state.shape}",
                    detail="Its servers would share one directory, and each that starts delete the others' temporary "
                    "files and tables.",
                    hint="Use single or multi-az.",
                )
            options.append("--local-storage")
            programs += ["mkfs.ext4", "mount", "umount"]
        if self.state.memory_bytes is not None:
            options.append("--memory")
            programs.append("setpriv")
        if options:
            check_machine(" and ".join(options), programs)
        if self.state.memory_bytes is not None:
            cgroup_of(self.folder)

    def create(self, user: ServerUser | None) -> None:
        """Create the resources. Raises LabError; the caller then removes with `release` what was created."""
        if self.cgroup is not None and self.state.memory_bytes is not None:
            create_cgroup(self.cgroup, memory_bytes=self.state.memory_bytes)
        for files in self._volumes():
            self._create_volume(files)
        if self.local_storage is not None and self.state.local_storage_bytes is not None:
            files = VolumeFiles(self.folder, _LOCAL)
            create_image(files, size_bytes=self.state.local_storage_bytes)
            mount_volume(files, files.image)
            make_private_dir(self.local_storage, user)

    def check_present(self) -> None:
        """Raise LabError if a volume is lost."""
        for name in self.find_lost():
            raise LabError(
                f'the volume of {name} of lab "{self.state.name}" is lost',
                hint=f"Remove the lab with penstock lab down {self.state.name}.",
            )

    def change_volumes(self, text: str) -> None:
        """Change the limits of all volumes to those that a text names. Raises UsageError, LabError."""
        throttle = parse_volume(text).throttle
        if throttle is None or parse_volume(self.state.volume or "unlimited").throttle is None:
            raise UsageError(f'the volumes of lab "{self.state.name}" cannot change between limited and unlimited')
        for files in self._volumes():
            change_throttle(files, throttle, is_mirrored=self._is_mirrored)

    def find_lost(self) -> list[str]:
        """Return the members whose volume is gone because the machine restarted or the volume's daemon ended."""
        processes = Processes(self.folder)
        return [
            files.name for files in self._volumes() if not files.is_mounted() or processes.find(_daemon(files)) is None
        ]

    @property
    def _is_mirrored(self) -> bool:
        return self.state.shape == "multi-az"

    def _volumes(self) -> list[VolumeFiles]:
        if self.state.volume is None:
            return []
        return [VolumeFiles(self.folder, member.name) for member in self.state.members if member.is_server]

    def _create_volume(self, files: VolumeFiles) -> None:
        volume = parse_volume(self.state.volume or "")
        create_image(files, size_bytes=volume.size_bytes, is_mirrored=self._is_mirrored)
        argv = daemon_argv(files, volume.throttle, is_mirrored=self._is_mirrored)
        processes, name = Processes(self.folder), _daemon(files)
        processes.start([Launch(name=name, argv=argv, folder=files.folder, user=None)])
        failure = f"{name} of the lab exported nothing within {_EXPORT_TIMEOUT_S} s"
        processes.await_ready(name, files.is_exported, timeout_s=_EXPORT_TIMEOUT_S, failure=failure)
        mount_volume(files, files.export)


def release(folder: Path) -> None:
    """Remove a lab's mounts, loop devices and control group. The lab's processes must have ended. Raises LabError."""
    release_volumes(folder)
    try:
        group = cgroup_of(folder)
    except LabError:
        # Without a hierarchy, no control group was created.
        return
    remove_cgroup(group)


def _daemon(files: VolumeFiles) -> str:
    return f"volume_{files.name}"
