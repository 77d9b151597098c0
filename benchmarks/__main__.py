"""`python -m benchmarks [NAME ...]`: runs the named benchmarks, all of them by default; `list` shows them."""

from __future__ import annotations

from benchmarks import (
    bad_rows,
    commits,
    dialects,
    disk_space,
    foretold_commits,
    indexed_load,
    latency_tls,
    ledger_overhead,
    memory,
    optimized_reads,
    pollock,
    rebuild_schedules,
    sampler_cost,
    single_file,
    small_objects,
    unequal_files,
)
from benchmarks.options import read_options

BENCHMARKS = {
    "single_file": single_file,
    "memory": memory,
    "unequal_files": unequal_files,
    "latency_tls": latency_tls,
    "ledger_overhead": ledger_overhead,
    "small_objects": small_objects,
    "bad_rows": bad_rows,
    "indexed_load": indexed_load,
    "rebuild_schedules": rebuild_schedules,
    "sampler_cost": sampler_cost,
    "commits": commits,
    "foretold_commits": foretold_commits,
    "disk_space": disk_space,
    "optimized_reads": optimized_reads,
    "pollock": pollock,
    "dialects": dialects,
}


def main() -> None:
    """Run what the command line names."""
    names, options = read_options()
    if names == ["list"]:
        for name, module in BENCHMARKS.items():
            print(f"{name}: {(module.__doc__ or '').splitlines()[0]}")
        return
    if unknown := set(names) - set(BENCHMARKS):
        raise SystemExit(f"no such benchmark: {', '.join(sorted(unknown))} (see: python -m benchmarks list)")
    for name in names or BENCHMARKS:
        print(f"== {name}", flush=True)
        BENCHMARKS[name].run(options)


if __name__ == "__main__":
    main()
