"""The texts of each diagnosis that rests on a load's own counts, by code. The rule fills in the words in braces."""

from __future__ import annotations

from typing import Final

from penstock.diagnose.rules.advice import Advice

_COUNTED = "docs/diagnose.md"
_MANUAL = "https://www.postgresql.org/docs/current/"
_POPULATE = f"{_MANUAL}populate.html"
_AGAIN = "load again: this share falls, at more rows per second"

# docs/diagnose.md has a section for each code. Step names are those of the load's steps.
LOAD_ADVICE: Final = {
    "load-source": Advice(
        "the load's time waits for the source of the files",
        "Read from nearer or faster storage: run the load on a host near the bucket or the disk. A source that gives "
        "each reader only so much is faster with more files, because each file has a reader.",
        _AGAIN,
        _COUNTED,
    ),
    "load-decompression": Advice(
        "the load's time waits for the decompression of the files",
        "Divide the data into more files, because each file is decompressed by one processor, or compress it with zstd "
        "or lz4, which decompress several times as fast as xz and bzip2.",
        _AGAIN,
        _COUNTED,
    ),
    "load-cutting": Advice(
        "the load's time waits until the records of the files are found, or decoded",
        "Divide the data into more files, because each file is read by one thread.",
        _AGAIN,
        _COUNTED,
    ),
    "load-encoding": Advice(
        "the load's time makes COPY data on the client's processors",
        "Run the load on a host with more or faster processors. Files in UTF-8, in PostgreSQL's text format or as CSV "
        "with commas, need the least work.",
        _AGAIN,
        _COUNTED,
    ),
    "load-commit": Advice(
        "the load's time waits for COMMIT",
        "Commit once, with --atomic, if the load may start again from its first row. penstock commits says what each "
        "commit waits for.",
        _AGAIN,
        f"{_MANUAL}wal-async-commit.html",
    ),
    "load-network": Advice(
        "the load's time sends rows that the server waits for",
        "Run the load on a host near the server, or over a faster link: the server takes rows faster than they arrive.",
        "load again: Client:ClientRead is below half of the sessions' active time",
        _COUNTED,
    ),
    "load-foreign-keys": Advice(
        "the load's time waits for checks at the end of COPY commands: foreign keys {names}",
        "Have the load drop the foreign keys and add them again at the end, which checks all rows at once: "
        "--indexes rebuild.",
        _AGAIN,
        _POPULATE,
    ),
    "load-triggers": Advice(
        "the load's time waits for work at the end of COPY commands: triggers {names}",
        "Disable the triggers during the load with --triggers disable, if the rows do not need them.",
        _AGAIN,
        _POPULATE,
    ),
    "load-server-cpu": Advice(
        "the load's time is spent on the server's processors, to parse, check and store rows",
        "{remedy}",
        _AGAIN,
        _POPULATE,
    ),
    "load-few-sessions": Advice(
        "the load's time waits for the server, whose sessions compute while other processors are idle{why}",
        "{remedy}",
        _AGAIN,
        _COUNTED,
    ),
    "load-server": Advice(
        "the load's time waits for the server to take and store rows",
        "Load more at a time, or record a longer load: samples of the server say what it does meanwhile.",
        _AGAIN,
        _COUNTED,
    ),
    "load-indexes": Advice(
        "the load's time creates indexes and keys after the rows",
        "Give the builds more memory and workers (maintenance_work_mem, max_parallel_maintenance_workers): --settings "
        "bulk-load does, unless the load used it. If the table had most of its rows before: --indexes keep.",
        _AGAIN,
        _POPULATE,
    ),
    "load-upkeep": Advice(
        "the load's time runs VACUUM, ANALYZE or CHECKPOINT after the rows",
        "Leave them to autovacuum, if queries can wait for it: --no-vacuum.",
        _AGAIN,
        _POPULATE,
    ),
    "load-replace": Advice(
        "the load's time creates the new table's indexes and keys, and exchanges the tables",
        "Give the builds more memory and workers (maintenance_work_mem, max_parallel_maintenance_workers): --settings "
        "bulk-load does, unless the load used it.",
        _AGAIN,
        _POPULATE,
    ),
    "load-store": Advice(
        "the load's time runs the statement that stores the staged rows",
        "See the statement's plan with EXPLAIN, and give it an index on the key and enough work_mem. In place of "
        "--mode truncate --atomic: --mode replace, which creates the indexes after the rows.",
        _AGAIN,
        _COUNTED,
    ),
}
