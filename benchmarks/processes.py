"""Runs a process and says what it cost, by the kernel's own account (wait4, in launcher.py)."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

_LAUNCHER = Path(__file__).with_name("launcher.py")


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """Wall-clock seconds, and where a client process was measured its CPU (user + system) and peak memory.

    A decompressor in front of the client counts in `seconds` alone. `least_rss_bytes` is what any process would show
    as its peak memory, because it is inherited.
    """

    seconds: float
    cpu_s: float | None = None
    peak_rss_bytes: int | None = None
    least_rss_bytes: int | None = None


class ProcessFailed(Exception):
    """A measured process ended with another status than 0."""


def run_measured(argv: list[str], *, gunzip: Path | None = None, status: int = 0) -> Cost:
    """Run a process to its end, with `gunzip` decompressed into its standard input where given.

    Raises ProcessFailed where it ends with another status.
    """
    order = json.dumps({"argv": argv, "gunzip": None if gunzip is None else str(gunzip)})
    # Without site-packages the launcher is a tenth of this process.
    launcher = [sys.executable, "-I", "-S", str(_LAUNCHER), order]
    told = json.loads(subprocess.run(launcher, capture_output=True, text=True, check=True).stdout)
    if told["status"] != status or not told["is_fed"]:
        raise ProcessFailed(f"{argv[0]} ended with {told['status']}\n{told['said']}")
    return Cost(**told["cost"], least_rss_bytes=told["least_rss_bytes"])
