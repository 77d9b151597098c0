"""The texts of each diagnosis that rests on a load's own counts, by code. A rule replaces the words in braces."""

from __future__ import annotations

from typing import Final

from penstock.diagnose.choices import Way
from penstock.diagnose.rules.advice import Advice

_COUNTED = "docs/diagnose.md"
_MANUAL = "https://www.postgresql.org/docs/current/"
_POPULATE = f"{_MANUAL}populate.html"
_AGAIN = "load again: this share falls, at more rows per second"

# More memory is no remedy: a load gives each build the amount that is fastest (changes/kinds/rebuild_plan.py).
_MORE_FOR_BUILDS = (Way("More processors and a faster disk of the server shorten the builds."),)

# docs/diagnose.md has a section for each code. Step names are those of the load's steps.
LOAD_ADVICE: Final = {
    "load-source": Advice(
        "the load's time waits for the source of the files",
        (
            Way("Run the load on a host near {far_source}, or over a faster link."),
            Way("Put the files on faster storage than {near_source} that has them."),
            Way("The program that writes to {pipe} is slower than the load: let it write faster."),
            Way(
                "A source that gives each reader only so much is faster with {more_files}, because each file has a "
                "reader."
            ),
        ),
        _AGAIN,
        _COUNTED,
    ),
    "load-decompression": Advice(
        "the load's time waits for the decompression of the files",
        (
            Way("Divide the data into {more_files}, because each file is decompressed by one processor."),
            Way("Compress the files with {fast_codec}, which decompress several times as fast as others."),
            Way("A host with more or faster processors decompresses faster."),
        ),
        _AGAIN,
        _COUNTED,
    ),
    "load-cutting": Advice(
        "the load's time waits until the records of the files are found, or decoded",
        (
            Way("Divide the data into {more_files}, because each file is read by one thread."),
            Way("A host with faster processors reads faster."),
        ),
        _AGAIN,
        _COUNTED,
    ),
    "load-encoding": Advice(
        "the load's time makes COPY data on the client's processors",
        (
            Way("Run the load on a host with more or faster processors."),
            Way("Files in {plain_text} need the least work."),
            Way("With {text_format} the server reads the values, and not this host."),
        ),
        _AGAIN,
        _COUNTED,
    ),
    "load-commit": Advice(
        "the load's time waits for COMMIT",
        (
            Way("Commit once, with {atomic}, if the load may start again from its first row."),
            Way("penstock commits says what each commit waits for."),
        ),
        _AGAIN,
        f"{_MANUAL}wal-async-commit.html",
    ),
    "load-network": Advice(
        "the load's time sends rows that the server waits for",
        (
            Way(
                "Run the load on a host near the server, or over a faster link: the server takes rows faster than "
                "they arrive."
            ),
        ),
        "load again: Client:ClientRead is below half of the sessions' active time",
        _COUNTED,
    ),
    "load-foreign-keys": Advice(
        "the load's time waits for checks at the end of COPY commands: foreign keys {names}",
        (
            Way(
                "Have the load drop the foreign keys and add them again at the end, which checks all rows at once: "
                "{rebuild_keys}."
            ),
            Way("The checks are faster if the server's memory has the keys of the referenced tables."),
        ),
        _AGAIN,
        _POPULATE,
    ),
    "load-triggers": Advice(
        "the load's time waits for work at the end of COPY commands: triggers {names}",
        (
            Way("Disable the triggers during the load, if the rows do not need them: {disable_triggers}."),
            Way("Let the triggers' functions do less for each row."),
        ),
        _AGAIN,
        _POPULATE,
    ),
    "load-server-cpu": Advice(
        "the load's time is spent on the server's processors, to parse, check and store rows",
        (
            Way("Disable triggers during the load, if the rows do not need them ({triggers}): {disable_triggers}."),
            Way("If the load brings most of the table's rows, create the indexes after them ({indexes}): {rebuild}."),
            Way("A server with more processors parses and stores rows faster."),
        ),
        _AGAIN,
        _POPULATE,
    ),
    "load-few-sessions": Advice(
        "the load's time waits for the server, whose sessions compute while other processors are idle{why}",
        (
            Way("Use more sessions: {more_sessions}."),
            Way("Without {not_atomic} several sessions load at a time."),
            Way("Copy standard input to a file first, so that several sessions can load it: {spool}."),
            Way("Each object is imported by one session: divide the data into {more_imports}."),
            Way("With {via_client} several sessions share an object."),
        ),
        _AGAIN,
        _COUNTED,
    ),
    "load-server": Advice(
        "the load's time waits for the server to take and store rows",
        (
            Way("{recording} shows what the server's sessions waited for."),
            Way("Without {no_record} samples of the server say what it does meanwhile."),
        ),
        _AGAIN,
        _COUNTED,
    ),
    "load-indexes": Advice(
        "the load's time creates indexes and keys after the rows",
        (*_MORE_FOR_BUILDS, Way("If the table had most of its rows before: {keep_indexes}.")),
        _AGAIN,
        _POPULATE,
    ),
    "load-upkeep": Advice(
        "the load's time runs VACUUM, ANALYZE or CHECKPOINT after the rows",
        (
            Way("Leave VACUUM and ANALYZE to autovacuum, if queries can wait for it: {no_vacuum}."),
            Way("Leave the checkpoint to the server: {no_checkpoint}."),
        ),
        _AGAIN,
        _POPULATE,
    ),
    "load-replace": Advice(
        "the load's time creates the new table's indexes and keys, and exchanges the tables",
        _MORE_FOR_BUILDS,
        _AGAIN,
        _POPULATE,
    ),
    "load-store": Advice(
        "the load's time runs the statement that stores the staged rows",
        (
            Way(
                "See the plan of {statement} with EXPLAIN, and give it the indexes that it looks up and enough "
                "work_mem."
            ),
            Way("In place of {truncate}: {replace}, which creates the indexes after the rows."),
            Way(
                "If the load brings most of the table's rows, create the indexes that the mode does not need after "
                "them: {rebuild}."
            ),
            Way("A faster disk, and more memory for the table and its indexes, shorten the statement."),
        ),
        _AGAIN,
        _COUNTED,
    ),
}
