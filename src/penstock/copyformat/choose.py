"""Chooses the format in which rows are sent, by what it saves the server and what it costs here. Pure.

docs/copy-format.md explains the model.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from penstock.copyformat.binary import KINDS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


@dataclass(frozen=True, slots=True, kw_only=True)
class CellGains:
    """What a value in the binary format saves, in ns: the server's time minus that of the encoder. Null saves nothing.

    `by_kind` has the kinds whose gain does not depend on the width. A text is copied whole in either format, and read
    byte by byte as text: it saves `text_ns_per_byte`, less `text_ns` for its length, and at least `least_text_ns`.
    Source: benchmarks/copy_format.py --cells, PostgreSQL 18, 2 sessions (measured: texts of 12, 32 and 200 bytes).
    """

    by_kind: Mapping[str, float] = field(
        default_factory=lambda: {
            "bool": 0.0,
            "int2": 5.0,
            "int4": 5.0,
            "numeric": 6.0,
            "int8": 25.0,
            "float4": 97.0,
            "float8": 97.0,
            "date": 110.0,
            "timestamp": 161.0,
            "timestamptz": 249.0,
            "uuid": 347.0,
        }
    )
    text_ns: float = 37.0
    text_ns_per_byte: float = 2.38
    least_text_ns: float = -8.0


GAINS = CellGains()


def gain_per_row(
    oids: Sequence[int], widths: Sequence[tuple[int, int]], *, records: int, gains: CellGains = GAINS
) -> float:
    """Return how many ns a row saves on average. `widths` are each column's values that are not null, and their bytes.

    >>> gain_per_row([23, 25], [(10, 40), (5, 50)], records=10)
    1.0
    """
    return sum(_gain(oid, *width, gains) for oid, width in zip(oids, widths, strict=True)) / max(records, 1)


def _gain(oid: int, values: int, length_bytes: int, gains: CellGains) -> float:
    kind = KINDS[oid]
    if kind != "text":
        return values * gains.by_kind[kind]
    return max(values * gains.least_text_ns, length_bytes * gains.text_ns_per_byte - values * gains.text_ns)
