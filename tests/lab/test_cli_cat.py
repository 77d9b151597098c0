"""`penstock cat`: objects as bytes, complete or not at all."""

from __future__ import annotations

import bz2
import gzip
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from penstock.cli.main import main

if TYPE_CHECKING:
    import random
    from pathlib import Path

    from support.s3_lab import S3Lab

_TEXT = b"\xef\xbb\xbfsep=;\na;b\r\n\x00\xff"


def _run(*arguments: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run([sys.executable, "-m", "penstock", "cat", *arguments], capture_output=True, check=False)


@pytest.mark.parametrize("pack", [bytes, gzip.compress, bz2.compress])
def test_bytes_are_printed_as_they_are_but_decompressed(tmp_path: Path, pack: type[bytes]) -> None:
    """Marks, encodings and binary bytes stay."""
    file = tmp_path / "x"
    file.write_bytes(pack(_TEXT))
    said = _run(str(file))
    assert (said.returncode, said.stdout) == (0, _TEXT)


def test_a_truncated_file_is_an_error(tmp_path: Path) -> None:
    """The exit code is not 0, although bytes were printed."""
    file = tmp_path / "x.gz"
    file.write_bytes(gzip.compress(_TEXT)[:-1])
    said = _run(str(file))
    assert said.returncode == 4
    assert b"truncated" in said.stderr


def test_cat_ends_with_its_reader(tmp_path: Path, rng: random.Random) -> None:
    """Also while it waits for its source."""
    fifo = tmp_path / "fifo"
    subprocess.run(["mkfifo", str(fifo)], check=True)
    argv = [sys.executable, "-m", "penstock", "cat", str(fifo)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE) as cat, fifo.open("wb") as source:
        source.write(rng.randbytes(2000))
        source.flush()
        assert cat.stdout is not None
        assert cat.stdout.read(1)
        cat.stdout.close()
        assert cat.wait(timeout=60) == 141


@pytest.mark.part("rest")
@pytest.mark.pg(">= 18")
def test_objects_of_s3_are_printed_one_after_another(
    s3_lab: S3Lab, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    """By key, wildcard or prefix, as for penstock load."""
    for name, value in s3_lab.environment.items():
        monkeypatch.setenv(name, value)
    s3_lab.put("x/1", b"one\n")
    s3_lab.put("x/2", gzip.compress(b"two\n"))
    for url in ("x/", "x/*"):
        assert main(["cat", f"s3://{s3_lab.bucket}/{url}"]) == 0
        assert capfdbinary.readouterr().out == b"one\ntwo\n"
    assert main(["cat", f"s3://{s3_lab.bucket}/y"]) == 4


@pytest.mark.parametrize("arguments", [[], ["x", "--call", "y"], ["--call", "/nonexistent"]])
def test_a_url_or_a_call_is_needed(arguments: list[str]) -> None:
    """Not both, and a call that exists."""
    assert main(["cat", *arguments]) == 2


def test_a_file_that_is_no_call_is_not_shown(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """It may have credentials. It is not removed either: a user may have named a file of their own."""
    file = tmp_path / "call"
    file.write_text(b'{"access_key": "PLANTED"'.hex())
    assert main(["cat", "--call", str(file)]) == 2
    assert "PLANTED" not in capfd.readouterr().err
    assert file.exists()
