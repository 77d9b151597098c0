"""The benchmarks' files, made once and kept: title.principals, parts of it as COPY text, copies of it in one gzip."""

from __future__ import annotations

import gzip
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.server import make_open_dir

if TYPE_CHECKING:
    from collections.abc import Iterator

PENSTOCK = str(Path(sys.executable).with_name("penstock"))

_READ_BYTES = 8 * 1024 * 1024
_DOUBLED_NULL = re.compile(rb"(?<![^\t\n])\\\\N(?![^\t\n])")


def principals(data: Path, scale: float) -> Path:
    """Return title.principals.tsv.gz at a scale."""
    folder = data / f"scale-{scale:.9f}"
    path = folder / "title.principals.tsv.gz"
    if not path.exists():
        make_open_dir(data)
        make_open_dir(folder)
        # Not in this process, whose memory must stay small (see processes.py).
        argv = [PENSTOCK, "lab", "imdb", f"--scale={scale!r}", "--tables=title.principals", f"--out={folder}"]
        subprocess.run(argv, check=True, stdout=subprocess.DEVNULL)
    return path


def repeated(path: Path, times: int) -> Path:
    """Return a gzip file of `times` members, each one the file: legal gzip, and each header is a row again."""
    target = path.with_name(f"{times}-times-{path.name}")
    if not target.exists():
        unfinished = target.with_suffix(".new")
        with unfinished.open("wb") as out:
            for _ in range(times):
                with path.open("rb") as member:
                    shutil.copyfileobj(member, out, _READ_BYTES)
        unfinished.replace(target)
    return target


def split_as_copy_text(path: Path, count: int) -> list[Path]:
    r"""Return `count` plain files of about equal size with the file's rows, as COPY text spells them.

    The header is gone and backslashes are doubled, but for \N: what COPY stores is what the file holds.
    """
    folder = path.parent / f"parts-{count}"
    parts = [folder / f"part-{number}.txt" for number in range(count)]
    if not folder.exists():
        unfinished = folder.with_suffix(".new")
        shutil.rmtree(unfinished, ignore_errors=True)
        make_open_dir(unfinished)
        part_bytes = -(-sum(map(len, _copy_text(path))) // count)
        _write_parts(_copy_text(path), [unfinished / part.name for part in parts], part_bytes)
        unfinished.rename(folder)
    return parts


def copy_text(lines: bytes) -> bytes:
    r"""Return whole lines of IMDb's form as COPY text.

    >>> copy_text(rb"a\b" + b"\t" + rb"\N" + b"\n")
    b'a\\\\b\t\\N\n'
    """
    return _DOUBLED_NULL.sub(rb"\\N", lines.replace(b"\\", b"\\\\"))


def _copy_text(path: Path) -> Iterator[bytes]:
    """Yield the file's rows in pieces of whole lines."""
    with gzip.open(path, "rb") as file:
        file.readline()
        while piece := file.read(_READ_BYTES):
            yield copy_text(piece + file.readline())


def _write_parts(pieces: Iterator[bytes], parts: list[Path], part_bytes: int) -> None:
    """Fill one part after another up to the first line end at or after its size."""
    targets = iter(parts)
    target = next(targets).open("wb")
    room = part_bytes
    for piece in pieces:
        rest = piece
        while rest:
            if room <= 0:
                target.close()
                target = next(targets).open("wb")
                room = part_bytes
            end = len(rest) if len(rest) < room else rest.index(b"\n", room - 1) + 1
            target.write(rest[:end])
            room -= end
            rest = rest[end:]
    target.close()
    for path in parts:
        # A file too small to be split leaves some parts empty.
        path.touch()
        # Server-side COPY reads them as the server's account.
        path.chmod(0o644)


def split_unequally(path: Path, shares: list[float]) -> list[Path]:
    """Return plain files with the file's rows, each with its header; `shares` of the bytes add up to 1."""
    folder = path.parent / f"unequal-{len(shares)}"
    files = [folder / f"file-{number:02}.tsv" for number in range(len(shares))]
    if not folder.exists():
        unfinished = folder.with_suffix(".new")
        shutil.rmtree(unfinished, ignore_errors=True)
        make_open_dir(unfinished)
        with gzip.open(path, "rb") as file:
            header, text = file.readline(), file.read()
        start = 0
        for number, target in enumerate(files):
            is_last = number == len(files) - 1
            wanted = start + int(shares[number] * len(text))
            end = len(text) if is_last else text.index(b"\n", wanted) + 1
            (unfinished / target.name).write_bytes(header + text[start:end])
            start = end
        unfinished.rename(folder)
    return files
