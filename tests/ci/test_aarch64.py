"""The wheel for aarch64, in qemu's emulation of that processor, loads the same rows as this processor's."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
import pytest

from support.command import run_process
from support.files import write_to

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.part("rest")

_ROOT = Path(__file__).resolve().parents[2]
# A Python of that processor with its libraries, unpacked by .ci/run.
_SYSTEM = Path("/var/cache/penstock-tests/python-arm64")
# pip takes wheels of another processor only if it is told their tags.
_PLATFORMS = [f"--platform=manylinux{glibc}_aarch64" for glibc in ("_2_28", "_2_27", "_2_24", "_2_17", "2014")]


@pytest.fixture(scope="module")
def emulated(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Provide a function (*arguments) that runs the Python into which the bundle for aarch64 is installed."""
    qemu = shutil.which("qemu-aarch64-static")
    if qemu is None:
        pytest.skip("it is emulated by qemu-aarch64-static (Debian's package qemu-user-static)")
    if not _SYSTEM.exists():
        pytest.skip(f"there is no Python for it in {_SYSTEM}: .ci/run unpacks one")
    python = next((_SYSTEM / "usr/bin").glob("python3.*[0-9]"))
    minor = python.name.partition(".")[2]
    bundle = next((_ROOT / "dist").glob(f"*-aarch64-cpython-3{minor}.tar"), None)
    if bundle is None:
        pytest.skip(f"there is no bundle for it and Python 3.{minor} in dist: make bundle ARCHS=aarch64 writes one")
    folder = tmp_path_factory.mktemp("aarch64")
    with tarfile.open(bundle) as tar:
        tar.extractall(folder, filter="data")
    options = (
        f"--quiet --no-index --no-compile --only-binary=:all: --python-version=3.{minor} --find-links={folder}/wheels"
    )
    command = [sys.executable, "-m", "pip", "install", *options.split(), f"--target={folder}/site", *_PLATFORMS]
    subprocess.run([*command, "pg-penstock"], check=True)
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "LD_"))}
    environment |= {"PYTHONPATH": str(folder / "site"), "QEMU_LD_PREFIX": str(_SYSTEM), "HOME": str(folder)}

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [qemu, python, *arguments], env=environment, capture_output=True, text=True, check=False, timeout=600
        )

    return run


def test_rows_loaded_by_aarch64_are_those_loaded_here(
    emulated: Callable[..., subprocess.CompletedProcess[str]], database18: str, tmp_path: Path
) -> None:
    """Records are cut, types found and values encoded there by lanes that no other test runs."""
    rng = random.Random(64)
    words = ["", "a", "ä", "zwölf", "'", '"', ",", "\n", "x" * 63, "x" * 64, "\\", "😀"]
    lines = ["id,weight,at,note\n"]
    for number in range(2000):
        note = "".join(rng.choices(words, k=rng.randrange(6))).replace('"', '""')
        lines.append(f'{number},{number / 8},2026-01-{number % 28 + 1:02} 10:00:00,"{note}"\n')
    rows = str(write_to(tmp_path / "rows.csv", "".join(lines)))
    there = emulated(
        "-m", "penstock", "load", rows, "--into", "there", "--create", "--types", "infer", "--to", database18
    )
    assert there.returncode == 0, there.stderr
    here = run_process("load", rows, "--into", "here", "--create", "--types", "infer", "--again", "--to", database18)
    assert here.code == 0, here.err
    with psycopg.connect(database18) as connection:
        tables = [connection.execute(f"SELECT * FROM {name} ORDER BY id") for name in ("here", "there")]
        types = [[column.type_code for column in table.description or ()] for table in tables]
        rows_by_table = [table.fetchall() for table in tables]
    assert types[0] == types[1]
    assert len(rows_by_table[0]) == 2000
    assert rows_by_table[0] == rows_by_table[1]
