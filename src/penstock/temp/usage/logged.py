"""Finds temporary files in the server's log, with their statements (log_temp_files). Pure.

Source: ReportTemporaryFileUsage in src/backend/storage/file/fd.c. "Error Reporting and Logging" in PostgreSQL's
documentation has the columns of csvlog and the keys of jsonlog.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterator
from typing import Any

from penstock.model.redaction import hide_secrets
from penstock.model.temp.usage import LogEnd, LoggedFiles
from penstock.observe.statements import strip_literals

# If lc_messages is not English, the words are different, and nothing is found.
_FILE = re.compile(r'temporary file: path "[^"]*", size (\d+)')
_STATEMENT = re.compile(r"\bSTATEMENT:  (.*)")
# Lines that may be between a message and its statement.
_BESIDE = re.compile(r"\b(?:DETAIL|HINT|CONTEXT|QUERY|LOCATION|BACKTRACE):  ")

_CSV_MESSAGE, _CSV_QUERY = 13, 19


def find_logged(log: LogEnd, *, top: int) -> tuple[LoggedFiles, ...]:
    """Return the statements with the most bytes in temporary files, by their text without literals."""
    read = {"jsonlog": _read_json, "csvlog": _read_csv, "stderr": _read_stderr}[log.format]
    found: dict[str, list[int]] = {}
    for message, statement in read(log.text):
        match = _FILE.search(message)
        if match is not None:
            found.setdefault(strip_literals(hide_secrets(statement)), []).append(int(match[1]))
    files = [
        LoggedFiles(statement=statement, files=len(sizes), total_bytes=sum(sizes), largest_bytes=max(sizes))
        for statement, sizes in found.items()
    ]
    return tuple(sorted(files, key=lambda each: -each.total_bytes)[:top])


def _read_json(text: str) -> Iterator[tuple[str, str]]:
    for line in text.splitlines():
        try:
            entry: Any = json.loads(line)
        except ValueError:
            # The last line may be incomplete.
            continue
        if isinstance(entry, dict):
            yield str(entry.get("message", "")), str(entry.get("statement", ""))


def _read_csv(text: str) -> Iterator[tuple[str, str]]:
    for row in csv.reader(text.splitlines(keepends=True)):
        if len(row) > _CSV_QUERY:
            yield row[_CSV_MESSAGE], row[_CSV_QUERY]


def _read_stderr(text: str) -> Iterator[tuple[str, str]]:
    """Yield each message about a file with the statement that follows it. Continuation lines begin with a tab."""
    message: str | None = None
    statement: list[str] = []
    for line in (*text.splitlines(), ""):
        if statement and line.startswith("\t"):
            statement.append(line.strip())
        elif message is not None and not statement and (match := _STATEMENT.search(line)):
            statement = [match[1]]
        elif message is None or statement or not (_BESIDE.search(line) or line.startswith("\t")):
            if message is not None:
                yield message, " ".join(statement)
            message, statement = (line if _FILE.search(line) else None), []
    if message is not None:
        yield message, " ".join(statement)
