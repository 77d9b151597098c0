"""`python -m benchmarks [NAME ...]`: runs the named benchmarks, all of them by default; `list` shows them.

`records [NAME ...]` makes the records that this commit lacks, and `old [DOCUMENT ...]` lists records that are old.
"""

from __future__ import annotations

import compileall
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import penstock
from benchmarks import (
    bad_rows,
    bulk_load,
    commit_latency,
    commits,
    copy_format,
    default_settings,
    dialects,
    disk_space,
    foretold_commits,
    frozen_rows,
    import_routes,
    indexed_load,
    infer,
    json_lines,
    latency_tls,
    ledger_overhead,
    many_hosts,
    memory,
    new_tables,
    optimized_reads,
    optimized_reads_multi_az,
    parquet,
    partitions,
    plantings,
    pollock,
    real_types,
    rebuild_schedules,
    recording_cost,
    sampler_cost,
    single_file,
    small_objects,
    sync,
    unequal_files,
    volumes,
)
from benchmarks.options import read_options
from benchmarks.record import UncleanTree, read, require_commit
from benchmarks.records import make_records, run_benchmark, show_old

if TYPE_CHECKING:
    from benchmarks.options import Options

BENCHMARKS = {
    "single_file": single_file,
    "memory": memory,
    "unequal_files": unequal_files,
    "latency_tls": latency_tls,
    "ledger_overhead": ledger_overhead,
    "small_objects": small_objects,
    "bad_rows": bad_rows,
    "indexed_load": indexed_load,
    "default_settings": default_settings,
    "rebuild_schedules": rebuild_schedules,
    "sampler_cost": sampler_cost,
    "recording_cost": recording_cost,
    "commits": commits,
    "commit_latency": commit_latency,
    "foretold_commits": foretold_commits,
    "disk_space": disk_space,
    "frozen_rows": frozen_rows,
    "optimized_reads": optimized_reads,
    "optimized_reads_multi_az": optimized_reads_multi_az,
    "bulk_load": bulk_load,
    "parquet": parquet,
    "partitions": partitions,
    "plantings": plantings,
    "pollock": pollock,
    "dialects": dialects,
    "volumes": volumes,
    "import_routes": import_routes,
    "infer": infer,
    "new_tables": new_tables,
    "many_hosts": many_hosts,
    "copy_format": copy_format,
    "real_types": real_types,
    "json_lines": json_lines,
    "sync": sync,
}


def main() -> None:
    """Run what the command line names."""
    names, options = read_options()
    if names == ["list"]:
        for name, module in BENCHMARKS.items():
            print(f"{name}: {(module.__doc__ or '').splitlines()[0]}")
        return
    if names[:1] == ["old"]:
        raise SystemExit(show_old(names[1:]) > 0)
    is_records = names[:1] == ["records"]
    names = names[1:] if is_records else names
    if unknown := set(names) - set(BENCHMARKS):
        raise SystemExit(f"no such benchmark: {', '.join(sorted(unknown))} (see: python -m benchmarks list)")
    try:
        options = replace(options, commit=require_commit())
        if is_records:
            missing = make_records(names, options, only_old=options.only_old, run=run_benchmark)
            raise SystemExit(missing > 0)
        if options.record is not None:
            _compute_again(options.record, options)
            return
        # As pip does when it installs: else each command compiles, where PYTHONDONTWRITEBYTECODE is set
        compileall.compile_dir(Path(penstock.__file__).parent, quiet=1)
        for name in names or BENCHMARKS:
            print(f"== {name}", flush=True)
            BENCHMARKS[name].run(options)
    except UncleanTree as reason:
        raise SystemExit(f"no record: {reason}") from None


def _compute_again(record: Path, options: Options) -> None:
    module = BENCHMARKS[read(record)["benchmark"]]
    if not hasattr(module, "compute_again"):
        raise SystemExit(f"the runs of {record.name} are not enough to compute it again")
    module.compute_again(record, options)


if __name__ == "__main__":
    main()
