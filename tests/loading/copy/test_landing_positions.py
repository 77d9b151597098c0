"""Records that travel with their positions are stored as COPY reads them, and in file order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.core.catalogue.catalog import find_table
from penstock.core.catalogue.staging import POSITION_COLUMNS, make_landing_table
from penstock.core.values.dialect import Dialect, TextFormat
from penstock.core.values.table import ColumnMap, TableName
from penstock.loading.copy.copy import copy_statement
from penstock.loading.copy.payload import make_encoder
from penstock.loading.formats.blocks import BlockReader, make_cutter

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hypothesis.strategies import DrawFn

    from penstock.core.connect.connection import Connection
    from penstock.loading.copy.payload import Encoder
    from penstock.loading.values.objects import Block

STAGING = TableName(schema="public", name="staged")
PLAIN = TableName(schema="public", name="t")
OBJECT_NUMBER = 7

# One session serves all examples: each works in a transaction that is rolled back.
AGAINST_SERVER = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])

PARTS: dict[TextFormat, tuple[str, ...]] = {
    "csv": ("a", "7", "é", "\\", '"|"', '"x\ny"', '"\r\n"', '""""', '""', "\\N"),
    "text": ("a", "7", "é", "\\|", "\\\\", "\\x41", "\\\n", "\\t", '"'),
    "tsv": ("a", "7", "é", "\\", '"', "\\t", "N"),
}


class File(NamedTuple):
    """A file's bytes, in the pieces that blocks are cut from, and its dialect."""

    dialect: Dialect
    pieces: list[bytes]
    columns: ColumnMap


@st.composite
def _files(draw: DrawFn) -> File:
    file_format: TextFormat = draw(st.sampled_from(list(PARTS)))
    mark = '"' if file_format == "csv" else None
    null = draw(st.sampled_from(["\\N", "7"] if file_format != "csv" else ["", "7"]))
    field = st.just(null) | st.lists(st.sampled_from(PARTS[file_format]), max_size=3).map("".join)
    records = draw(st.lists(st.tuples(field, field), max_size=8))
    line_end = draw(st.sampled_from(["\n", "\r\n", "\r"]))
    text = line_end.join(map("|".join, records)) + (draw(st.sampled_from(["", line_end])) if records else "")
    data = text.encode()
    cuts = sorted(draw(st.lists(st.integers(0, len(data)), max_size=4)))
    pieces = [data[start:end] for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True)]
    columns = draw(
        st.sampled_from(
            [
                ColumnMap(columns=("a", "b"), field_count=2),
                ColumnMap(columns=("b",), keep=(1,), field_count=2),
                ColumnMap(columns=("b", "a", "c"), keep=(1, 0), constants=("x|\n",), field_count=2),
            ]
        )
    )
    dialect = Dialect(
        format=file_format, delimiter="|", quote=mark, escape=mark, nulls=(null,), has_header=False, encoding="UTF8"
    )
    return File(dialect=dialect, pieces=[piece for piece in pieces if piece], columns=columns)


def _copy(connection: Connection, encoder: Encoder, blocks: Iterable[Block]) -> None:
    """Send blocks by one COPY each, since untouched ones may end their lines in another way."""
    for block in blocks:
        with connection.cursor() as cursor, cursor.copy(copy_statement(encoder.spec)) as copy:
            for part in encoder.encode(block):
                copy.write(part)


def _rows(connection: Connection, query: str) -> list[tuple[Any, ...]]:
    return connection.execute(query.encode()).fetchall()


@AGAINST_SERVER
@given(file=_files(), order=st.randoms(use_true_random=False))
def test_staged_records_equal_copys_own(connection: Connection, file: File, order: Any) -> None:
    """Value for value, each with the offset of its block, however the blocks arrive."""
    cutter = make_cutter(file.dialect, server_major=connection.info.server_version // 10_000)
    blocks = [block for block in BlockReader(iter(file.pieces), cutter, uri="f") if block.records]
    with connection.transaction(force_rollback=True):
        connection.execute("CREATE TABLE public.t (n serial, a text, b text, c text)")
        plain = make_encoder(file.dialect, file.columns, table=PLAIN, encoding="UTF8")
        placed = make_encoder(file.dialect, file.columns, table=STAGING, encoding="UTF8", positions=OBJECT_NUMBER)
        columns = file.columns.columns
        target = find_table(connection, PLAIN)
        assert target is not None
        make_landing_table(
            connection, schema="public", name=STAGING.name, target=target, columns=columns, as_text=False
        )
        _copy(connection, plain, blocks)
        _copy(connection, placed, order.sample(blocks, len(blocks)))
        listed, positions = ", ".join(columns), ", ".join(POSITION_COLUMNS)
        expected = _rows(connection, f"SELECT {listed} FROM public.t ORDER BY n")
        assert _rows(connection, f"SELECT {listed} FROM staged ORDER BY {positions}") == expected
        starts = _rows(connection, f"SELECT penstock_object, penstock_block FROM staged ORDER BY {positions}")
        assert starts == [(OBJECT_NUMBER, block.start) for block in blocks for _ in range(block.records)]
