"""Columnar files for tests: made by pyarrow, and the loads that read them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from support.loads import Loads

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.fixture
def loads(ledger18: str) -> Loads:
    """Provide loads into a database with nothing but a ledger."""
    return Loads(ledger18)


@pytest.fixture
def write_parquet(tmp_path: Path) -> Callable[..., Path]:
    """Provide a function (columns, name="f", **options of pyarrow) that writes a Parquet file and returns its path."""

    def write(columns: Any, name: str = "f", **options: Any) -> Path:
        path = tmp_path / f"{name}.parquet"
        table = columns if isinstance(columns, pa.Table) else pa.table(columns)
        pq.write_table(table, path, **{"write_page_checksum": True, **options})
        return path

    return write


@pytest.fixture
def write_arrow(tmp_path: Path) -> Callable[..., Path]:
    """Provide a function (columns, name="f", rows=None) that writes an Arrow IPC file of batches of `rows` rows."""

    def write(columns: Any, name: str = "f", rows: int | None = None) -> Path:
        path = tmp_path / f"{name}.arrow"
        table = columns if isinstance(columns, pa.Table) else pa.table(columns)
        with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
            writer.write_table(table, rows)
        return path

    return write
