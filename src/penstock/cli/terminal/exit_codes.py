"""The exit codes and their meanings: one list for --help, the reference and the tests."""

from __future__ import annotations

OK = 0
REJECTS = 3
# The exit code of `pg_ctl status` for a server that does not run.
NOT_RUNNING = 3
# The exit code of penstock load --check and of penstock temp check.
PROBLEMS = 5
WOULD_NOT_LOAD = 9
INTERNAL_ERROR = 70
INTERRUPTED = 130
# The exit code that a shell reports for a program that SIGPIPE has ended.
BROKEN_PIPE = 141

EXIT_CODES = (
    (OK, "done; for --check and temp check, no problem was found; for doctor, ready to load"),
    (1, "any other error"),
    (2, "usage error: an option, a job file or a dialect is invalid; with --warnings error, a warning"),
    (
        REJECTS,
        "complete, but records were rejected or objects not read; for server and lab status: the server is not running",
    ),
    (4, "a source cannot be found, read or decompressed, changed meanwhile, or is not part of the load (--join)"),
    (PROBLEMS, "the data does not fit the dialect or the table; for --check and temp check, problems were found"),
    (6, "the table is missing, does not match, or cannot be loaded into"),
    (7, "the server refused, failed or went away"),
    (8, "an embedded server could not be set up or run"),
    (WOULD_NOT_LOAD, "doctor, load --plan: a load would be refused, for the reasons shown"),
    (10, "AWS cannot be reached, refuses the request, or does not know the instance"),
    (INTERNAL_ERROR, "internal error: please report its traceback"),
    (INTERRUPTED, "interrupted by Ctrl-C or a signal"),
    (BROKEN_PIPE, "standard output was closed by its reader"),
)
