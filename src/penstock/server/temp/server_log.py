"""Reads the end of the server's log with SQL, if the role may."""

from __future__ import annotations

from typing import cast

import psycopg

from penstock.model.temp.usage import LogEnd, LogFormat
from penstock.server.connect.connection import Connection
from penstock.server.connect.errors import translate_errors
from penstock.units import MIB

_MOST_BYTES = 16 * MIB

# The current log file. If the server writes several formats, the first one in the given list is used, which has the
# most fields.
_FILE = """
    SELECT f.format, pg_catalog.pg_current_logfile(f.format)
      FROM pg_catalog.unnest(%s::text[]) WITH ORDINALITY AS f (format, number)
     WHERE pg_catalog.pg_current_logfile(f.format) IS NOT NULL
     ORDER BY f.number
     LIMIT 1
"""
_END = """
    SELECT pg_catalog.pg_read_binary_file(%(path)s, greatest(s.size - %(most)s, 0), %(most)s), s.size > %(most)s
      FROM pg_catalog.pg_stat_file(%(path)s) AS s
"""


def _formats(connection: Connection) -> list[LogFormat]:
    """Return the log formats that the server's version has. The server refuses the names of other formats."""
    return ["jsonlog", "csvlog", "stderr"] if connection.info.server_version >= 150000 else ["csvlog", "stderr"]


def read_log_end(connection: Connection, *, missing: list[str]) -> LogEnd | None:
    """Return the last 16 MiB of the current log, or None and a reason in `missing` if it cannot be used.

    Needs a superuser, or EXECUTE on pg_current_logfile(text), pg_stat_file(text) and pg_read_binary_file(text, bigint,
    bigint). Raises ServerError.
    """
    with translate_errors("reading the server's log"):
        row = connection.execute("SELECT pg_catalog.current_setting('log_temp_files')").fetchone()
        if row == ("-1",):
            missing.append("temporary files in the log: log_temp_files is -1: set it to 0 to log all of them")
            return None
        try:
            found = connection.execute(_FILE, [_formats(connection)]).fetchone()
            if found is None:
                missing.append("temporary files in the log: the server does not collect it (logging_collector is off)")
                return None
            read = connection.execute(_END, {"path": found[1], "most": _MOST_BYTES}).fetchone()
        except (psycopg.errors.InsufficientPrivilege, psycopg.errors.UndefinedFile):
            missing.append("temporary files in the log: the role may not read it with pg_read_binary_file")
            return None
    assert read is not None
    text = bytes(read[0]).decode(errors="replace")
    return LogEnd(
        path=found[1],
        format=cast("LogFormat", found[0]),
        text=text.partition("\n")[2] if read[1] else text,
    )
