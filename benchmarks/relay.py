"""The lab's relay, in a process, which holds every byte back for a time, or limits how many pass.

`python -m benchmarks.relay PORT DELAY_MS [BYTES_PER_S]` prints the port it listens at and runs until its standard input
ends. In a process of its own, so that it shares no interpreter with what is measured.
"""

from __future__ import annotations

import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

from penstock_lab.topology.relay import Relay

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager


@contextmanager
def helper(module: str, *arguments: str) -> Iterator[int]:
    """Provide the port of a helper process, this module's or tls_front's, which ends with its standard input."""
    argv = [sys.executable, "-m", module, *arguments]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        try:
            yield int(process.stdout.readline())
        finally:
            process.stdin.close()


def relay(port: int, *, delay_ms: float, bytes_per_s: float | None = None) -> AbstractContextManager[int]:
    """Provide the port of a relay to 127.0.0.1:`port` that delays each direction by `delay_ms`, or limits both."""
    limit = [] if bytes_per_s is None else [str(bytes_per_s)]
    return helper("benchmarks.relay", str(port), str(delay_ms), *limit)


def main() -> None:
    """Listen until standard input ends."""
    port, delay_ms = int(sys.argv[1]), float(sys.argv[2])
    bytes_per_s = float(sys.argv[3]) if len(sys.argv) > 3 else None
    print(Relay(port, delay_s=delay_ms / 1000, bytes_per_s=bytes_per_s).port, flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
