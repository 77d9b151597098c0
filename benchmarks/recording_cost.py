"""What recording a load costs: the CPU of the thread that records and of its backend, as a share of the load's CPU.

Run with arguments, this module is a load that measures its own recording: FILE CONNINFO RESULT.
"""

from __future__ import annotations

import json
import resource
import statistics
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.cpu import run_once
from benchmarks.data import principals
from benchmarks.record import save, spread
from benchmarks.server import QUALIFIED, Target, bench_server
from benchmarks.ways import AS_COPY
from penstock.cli.main import main as penstock
from penstock.core.host.process import process_cpu_s
from penstock.watch.sampler import Sampler
from penstock.watch.watching import SamplerThread
from penstock_lab.datasets.people import expected_rows

if TYPE_CHECKING:
    from benchmarks.options import Options

_BAR_PERCENT = 1.0


def run(options: Options) -> None:
    """Run it and write the results."""
    path, rows = principals(options.data, options.scale), expected_rows("title.principals", options.scale)
    result = options.data / "recording_cost.json"
    runs = []
    with bench_server(options.data) as server, Target(server.conninfo()) as target:
        argv = [sys.executable, "-m", "benchmarks.recording_cost", str(path), server.conninfo(), str(result)]
        for number in range(-1, options.runs):
            target.renew()
            result.unlink(missing_ok=True)
            found = run_once(argv, server, target, rows=rows)
            cost = json.loads(result.read_text(encoding="utf-8"))
            recording_s = cost["client_s"] + cost["server_s"]
            percent = 100 * recording_s / (found.cpu_s - recording_s)
            print(f"{found.seconds:.2f} s, {found.cpu_s:.2f} s of CPU, recording {percent:.2f} %: {cost}", flush=True)
            if number >= 0:
                runs.append({**cost, "seconds": found.seconds, "cpu_s": found.cpu_s, "percent": percent})
        settings = target.settings()
    shares = spread([each["percent"] for each in runs])
    save(
        "recording_cost",
        options=options,
        postgresql=settings,
        settings={"rows": rows, "bar_percent": _BAR_PERCENT},
        results={"percent": shares, "runs": runs},
        table=[
            ("", "median"),
            *((name, f"{statistics.median(each[name] for each in runs):.3f}") for name in runs[0]),
        ],
        notes=[
            (
                f"Recording takes {shares['median']:.2f} % of the load's own CPU, client and server; "
                f"{shares['lowest']:.2f} to {shares['highest']:.2f} %. The bar is {_BAR_PERCENT:.0f} %."
            ),
            "client_s is the CPU of the thread that records (getrusage), server_s that of its backend (/proc).",
        ],
    )


def main(path: str, conninfo: str, result: str) -> None:
    """Load a file as the command does, and write what the recording of it has cost."""
    cost = {"client_s": 0.0, "server_s": 0.0, "samples": 0}
    record, sample, close = SamplerThread._run, Sampler.sample, Sampler.close  # noqa: SLF001 (measured from the inside)

    def measured_record(beside: SamplerThread) -> None:
        record(beside)
        usage = resource.getrusage(resource.RUSAGE_THREAD)
        cost["client_s"] = usage.ru_utime + usage.ru_stime

    def measured_sample(sampler: Sampler, *, reads_all: bool = False) -> object:
        cost["samples"] += 1
        return sample(sampler, reads_all=reads_all)

    def measured_close(sampler: Sampler) -> None:
        pid = sampler._reader._connection.info.backend_pid  # noqa: SLF001 (as above)
        cost["server_s"] = process_cpu_s(pid) or 0.0
        close(sampler)

    SamplerThread._run = measured_record  # type: ignore[method-assign]  # noqa: SLF001 (as above)
    Sampler.sample = measured_sample  # type: ignore[assignment,method-assign]
    Sampler.close = measured_close  # type: ignore[method-assign]
    status = penstock(["load", path, "--into", QUALIFIED, "--to", conninfo, "--quiet", "--again", *AS_COPY])
    Path(result).write_text(json.dumps(cost), encoding="utf-8")
    sys.exit(status)


if __name__ == "__main__":
    main(*sys.argv[1:])
