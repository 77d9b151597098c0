"""Fetches PostgreSQL 14, the oldest version penstock supports, from Maven Central: no wheel holds it.

The artifact io.zonky.test.postgres:embedded-postgres-binaries is a jar around a .txz of a relocatable
PostgreSQL. It is fetched once per machine and kept in the user's cache.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

from penstock.embedded.control import exclusive_lock

VERSION = "14.18.0"

_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64v8"}

# Pinned, so that a build does not start to use another plugin by itself.
_PLUGIN = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1"

_FETCH_TIMEOUT_S = 180


class Unavailable(Exception):
    """PostgreSQL 14 cannot be had here; the message says why."""


def describe() -> str:
    """Return in a few words whether PostgreSQL 14 is here, for the header of a test run."""
    try:
        return "14 (Maven, cached)" if is_cached() else f"14 (Maven, to be fetched by {_find_mvn()})"
    except Unavailable as reason:
        return f"no 14: {reason}"


def is_cached() -> bool:
    """Return whether it has been fetched before."""
    return (_folder() / "bin").is_dir()


def fetch_postgres_14() -> Path:
    """Return the folder of PostgreSQL 14's programs, fetching them the first time. Raises Unavailable."""
    folder = _folder()
    folder.parent.mkdir(parents=True, exist_ok=True)
    with exclusive_lock(folder.parent / "lock"):
        if not is_cached():
            _fetch(folder)
    return folder / "bin"


def _folder() -> Path:
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "penstock-tests" / f"postgresql-{VERSION}"


def _find_mvn() -> str:
    if not sys.platform.startswith("linux") or platform.machine() not in _ARCHITECTURES:
        raise Unavailable(f"its binaries are not fetched for {sys.platform} {platform.machine()}")
    mvn = shutil.which("mvn")
    if mvn is None:
        raise Unavailable("it is fetched by Maven, and mvn is not installed (Debian's package maven)")
    return mvn


def _fetch(folder: Path) -> None:
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        jar = _copy_jar(_find_mvn(), Path(scratch))
        with zipfile.ZipFile(jar) as archive:
            [name] = [name for name in archive.namelist() if name.endswith(".txz")]
            unpacked = Path(scratch) / "unpacked"
            with archive.open(name) as stream, tarfile.open(fileobj=stream, mode="r:xz") as tar:
                tar.extractall(unpacked, filter="data")
        unpacked.rename(folder)


def _copy_jar(mvn: str, scratch: Path) -> Path:
    artifact = f"embedded-postgres-binaries-linux-{_ARCHITECTURES[platform.machine()]}"
    try:
        subprocess.run(
            [
                mvn,
                "--batch-mode",
                "--quiet",
                f"{_PLUGIN}:copy",
                f"-Dartifact=io.zonky.test.postgres:{artifact}:{VERSION}",
                f"-DoutputDirectory={scratch}",
            ],
            cwd=scratch,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_FETCH_TIMEOUT_S,
            check=True,
        )
    except subprocess.TimeoutExpired as error:
        raise Unavailable(f"mvn did not fetch it within {_FETCH_TIMEOUT_S} s") from error
    except subprocess.CalledProcessError as error:
        said = (error.stdout or error.stderr or "").strip().splitlines()
        raise Unavailable(f"mvn could not fetch it: {said[0] if said else error}") from error
    return scratch / f"{artifact}-{VERSION}.jar"
