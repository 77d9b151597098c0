"""Which other objects contradict the dialect that was found in the first one."""

from __future__ import annotations

import csv
import io
import random
from functools import partial
from typing import TYPE_CHECKING

import pytest

from penstock.core.errors import DataError
from penstock.core.values.dialect import DialectOptions
from penstock.loading.formats.probe.probing import find_contradiction, probe_dialect, refuse_unclear_escapes

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

OPEN = DialectOptions()
# Texts and numbers as people write them, with all that is a delimiter elsewhere
VALUES = ("7", "95,26", "1;2", "Lee, Ann", "x|y", "a; b; c", "", "plain", "see p. 3|4; or 5, 6", "2026-01-31")


def make_file(rng: random.Random, *, delimiter: str, columns: int, records: int, header: Sequence[str] | None) -> bytes:
    """Return a file as csv writers make it: quotes only where they must be."""
    text = io.StringIO()
    writer = csv.writer(text, delimiter=delimiter, lineterminator="\n")
    if header is not None:
        writer.writerow(header)
    for number in range(records):
        writer.writerow([number, *(rng.choice(VALUES) for _ in range(columns - 1))])
    return text.getvalue().encode()


@pytest.mark.parametrize("has_header", [False, True], ids=["no header", "header"])
@pytest.mark.parametrize("delimiter", [",", ";", "|", "\t"])
def test_file_of_one_record_is_not_refused_for_the_delimiters_in_its_texts(
    some: Callable[[Sequence[int], int], list[int]], delimiter: str, *, has_header: bool
) -> None:
    """In 500 folders whose first file has many records, none of which another delimiter divides alike."""
    for folder in some(range(500), 100):
        rng = random.Random(folder)
        columns = rng.randrange(2, 6)
        names = [f"column_{number}" for number in range(columns)]
        header = names if has_header else None
        first = make_file(rng, delimiter=delimiter, columns=columns, records=50, header=header)
        probed = probe_dialect(first, options=OPEN, is_whole=True, table_columns=names, uri="1", bom=None)
        assert probed.dialect.delimiter == delimiter
        head = make_file(rng, delimiter=delimiter, columns=columns, records=1, header=header)
        found = find_contradiction(
            head,
            is_whole=True,
            dialect=probed.dialect,
            options=OPEN,
            header=probed.header,
            table_columns=names,
            column_count=probed.field_count,
        )
        assert found is None, head


@pytest.mark.parametrize(
    ("head", "is_refused"),
    [
        (b"1;x,y\n", False),
        (b"1;x,y\n2;z,w\n", True),
        (b"1;x,y,z\n", True),
        (b"1;x\n", True),
    ],
    ids=["one that fits", "two", "one that does not fit", "one without the delimiter"],
)
def test_one_record_is_another_dialect_only_where_the_first_does_not_fit_it(head: bytes, *, is_refused: bool) -> None:
    """The first file is divided by commas, into two fields."""
    probed = probe_dialect(b"1,x\n2,y\n", options=OPEN, is_whole=True, table_columns=None, uri="1", bom=None)
    found = find_contradiction(
        head,
        is_whole=True,
        dialect=probed.dialect,
        options=OPEN,
        header=None,
        table_columns=("a", "b"),
        column_count=2,
    )
    assert (found is not None) is is_refused


@pytest.mark.parametrize(
    ("head", "is_unclear"),
    [
        (b"1\tC:\\new\\table\n", True),
        (b"1\ta\\nb\n", True),
        (b"1\t\\\\nas\\books\n", True),
        (b"x\t\\\\nas\n", True),
        (b"1\t\\\\\\\\nas\\\\books\n", False),
        (b"1\tC:\\\\new\n", False),
        (b"1\ta\\nb\n2\t\\N\n", False),
        (b"1\ta\\nb\n\\.\n", False),
        (b"1\ta\\nb\n" * 10_000 + b"1\t\\N\n", False),
        (b"1\t" + b"x" * 40_000 + b"\\nb", True),
        (b"1\ta\\nb\n" + b"1\tx\n" * 10_000 + b"1\tC:\\Users\n", True),
        (b"1\tC:\\Users\n", False),
        (b"1\tx\n", False),
        (b'1\t"a\\nb"\n', False),
    ],
)
@pytest.mark.parametrize("is_whole", [True, False])
def test_backslashes_are_unclear_unless_something_in_the_block_explains_them(
    head: bytes, *, is_unclear: bool, is_whole: bool
) -> None:
    r"""Nulls, the end-of-data mark and doubled backslashes do, but for those that a UNC path begins with."""
    probed = probe_dialect(head, options=OPEN, is_whole=is_whole, table_columns=None, uri="1", bom=None)
    look = partial(refuse_unclear_escapes, head, is_whole=is_whole, dialect=probed.dialect, options=OPEN, uri="1")
    if is_unclear:
        with pytest.raises(DataError, match="backslashes may be escapes or data"):
            look()
    else:
        look()
