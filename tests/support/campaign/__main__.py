"""`python -m support.campaign --points N`: plays seeds until a record has N points; resumes an earlier run.

Several workers play at once, each with servers of its own. A scenario that breaks ends the campaign with status 1; its
seed is played again by the next run.
"""

from __future__ import annotations

import argparse
import itertools
import json
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.record import RECORDS, UncleanTree, require_commit

from support.campaign.record import add_up, append, read_record, write_summary
from support.campaign.scenario import FORMS

if TYPE_CHECKING:
    from collections.abc import Iterator


class _Campaign:
    """Seeds handed out to workers, results taken in, until there are enough points or one has broken."""

    def __init__(self, record: Path, *, first_seed: int, points: int, ends_s: float, form: str | None) -> None:
        self._record = record
        self._form = form
        self._points = points
        self._ends_s = ends_s
        self._lock = threading.Lock()
        self.lines = read_record(record)
        done = {line["seed"] for line in self.lines}
        self._seeds: Iterator[int] = (seed for seed in itertools.count(first_seed) if seed not in done)
        self.broken: list[str] = []

    def work(self) -> None:
        """Have one worker play seed after seed."""
        argv = [sys.executable, "-m", "support.campaign.worker", *([self._form] if self._form else [])]
        with subprocess.Popen(
            argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
        ) as worker:
            assert worker.stdin is not None
            assert worker.stdout is not None
            while (seed := self._next_seed()) is not None:
                worker.stdin.write(f"{seed}\n")
                worker.stdin.flush()
                answer = worker.stdout.readline()
                self._take(json.loads(answer) if answer else {"seed": seed, "broken": "the worker ended"})
            worker.stdin.close()

    def _next_seed(self) -> int | None:
        with self._lock:
            is_over = add_up(self.lines).points >= self._points or time.monotonic() > self._ends_s
            return None if is_over or self.broken else next(self._seeds)

    def _take(self, result: dict[str, Any]) -> None:
        with self._lock:
            if "broken" in result:
                self.broken.append(f"seed {result['seed']}: {result['broken']}")
                return
            self.lines.append(result)
            append(self._record, result)
            kinds = " ".join(kind for kind, *_ in result["hits"])
            totals = add_up(self.lines)
            print(
                f"seed {result['seed']}, {result['theme']}, {result['mode']}, PostgreSQL {result['major']}, "
                f"{result['seconds']} s: {kinds or 'nothing hit'}; now {totals.points} points",
                *(f"  a loader ended early:{reason}" for reason in result["reasons"]),
                sep="\n",
                flush=True,
            )


def main() -> int:
    """Run or go on with a campaign; return the process's exit status."""
    options = _read_options()
    if options.record.resolve().is_relative_to(RECORDS):
        try:
            require_commit()
        except UncleanTree as reason:
            sys.exit(f"no record: {reason}")
    ends_s = time.monotonic() + 60 * options.minutes
    campaign = _Campaign(
        options.record, first_seed=options.seed, points=options.points, ends_s=ends_s, form=options.form
    )
    threads = [threading.Thread(target=campaign.work) for _ in range(options.workers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    # With the commits that the lines were given.
    lines = read_record(options.record)
    if lines:
        write_summary(options.record.with_suffix(".md"), lines, record=options.record)
        print(add_up(lines))
    for text in campaign.broken:
        print(text)
    return 1 if campaign.broken else 0


def _read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m support.campaign", description="Seeded fault campaign.")
    parser.add_argument("--points", type=int, default=2000, help="end when the record has so many (default 2000)")
    parser.add_argument("--seed", type=int, default=1, help="the first seed; those in the record are left out")
    parser.add_argument("--record", type=Path, required=True, help="a file of JSON lines; its summary is beside it")
    parser.add_argument("--workers", type=int, default=2, help="scenarios played at once (default 2)")
    parser.add_argument("--minutes", type=float, default=600.0, help="begin no scenario after so long")
    parser.add_argument("--form", choices=FORMS, help="the form of all files, such as jsonl (default: any)")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
