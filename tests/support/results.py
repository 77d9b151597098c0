"""What statements return."""

from __future__ import annotations

from typing import Any

import psycopg


def has_rows(cursor: psycopg.Cursor[Any]) -> bool:
    """Return whether a statement returns rows, including those of SELECT FROM t, which have no columns to describe."""
    return cursor.pgresult is not None and cursor.pgresult.status == psycopg.pq.ExecStatus.TUPLES_OK
