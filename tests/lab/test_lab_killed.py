"""Whatever becomes of `lab up`, `lab down --all` leaves nothing of it."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest

from penstock.cli.main import main
from penstock.embedded.layout import ClusterFiles
from penstock_lab.topology.shapes import members_of

if TYPE_CHECKING:
    from penstock_lab.topology.shapes import Shape

pytestmark = pytest.mark.part("rest")

_MOMENTS = 20
_SHAPES: tuple[Shape, ...] = ("quorum", "cluster")


def _start_up(home: Path, shape: str, *, name: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "penstock", "lab", "up", shape, "--name", name, "--zone-latency", "1ms"],
        env={**os.environ, "PENSTOCK_HOME": str(home)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def _processes_of(home: Path) -> list[psutil.Process]:
    """Return what works below a folder or names it."""
    found = []
    for process in psutil.process_iter():
        try:
            is_there = Path(process.cwd()).is_relative_to(home)
            if is_there or any(str(home) in part for part in process.cmdline()):
                found.append(process)
        except psutil.Error:
            continue
    return [process for process in found if process.pid != os.getpid()]


@pytest.fixture(scope="module")
def whole_s() -> dict[str, float]:
    """Provide how long each shape took to come up, once that is known."""
    return {}


@pytest.mark.parametrize("moment", range(_MOMENTS))
def test_nothing_stays_of_a_lab_whose_up_was_killed(
    home: Path, seed: int, moment: int, whole_s: dict[str, float]
) -> None:
    """At any moment, from the first file to the last receiver."""
    shape = _SHAPES[moment % len(_SHAPES)]
    if shape not in whole_s:
        began_s = time.monotonic()
        assert _start_up(home, shape, name="whole").wait() == 0
        whole_s[shape] = time.monotonic() - began_s
        assert _processes_of(home)
    up = _start_up(home, shape, name="killed")
    time.sleep(random.Random(seed + moment).uniform(0.05, 1.05) * whole_s[shape])
    up.kill()
    up.wait()
    assert main(["lab", "down", "--all"]) == 0
    assert _processes_of(home) == []
    assert [path.name for path in (home / "labs").glob("*")] in ([".lock"], [])
    names = [member.name for member in members_of(shape)]
    assert not any(ClusterFiles(home / "labs" / "killed" / name).socket_dir.exists() for name in names)


def test_somebodys_shell_in_the_labs_folder_survives_its_end(home: Path) -> None:
    """Only the lab's own programs are ended."""
    assert main(["lab", "up", "single"]) == 0
    folder = home / "labs" / "lab"
    with subprocess.Popen(["sh", "-c", "read line"], cwd=folder, stdin=subprocess.PIPE) as shell:
        assert main(["lab", "down"]) == 0
        assert shell.poll() is None
        shell.communicate(b"\n")
    assert not folder.exists()
