"""Chooses the format in which rows are sent, by what it saves the server and what it costs here. Pure.

docs/copy-format.md explains the model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field

from penstock.copyformat.binary import KINDS
from penstock.frozen import frozen


@frozen
class CellGains:
    """What a value in the binary format saves, in ns: the server's time minus that of the encoder. Null saves nothing.

    `by_kind` has the kinds whose gain does not depend on the width. A text is copied whole in either format, and read
    byte by byte as text: it saves `text_ns_per_byte`, less `text_ns` for its length, and at least `least_text_ns`.
    The figures are medians of several runs of benchmarks/copy_format.py (PostgreSQL 18, 2 sessions). They grow and
    shrink with the machine's speed, their signs hardly. Texts follow the line through those of 12 and 200 bytes.
    """

    by_kind: Mapping[str, float] = field(
        default_factory=lambda: {
            "bool": 12.0,
            "int2": 0.0,
            "int4": 23.0,
            "numeric": -3.0,
            "int8": 45.0,
            "float4": 33.0,
            "float8": 120.0,
            "date": 110.0,
            "timestamp": 292.0,
            "timestamptz": 286.0,
            "uuid": 392.0,
        }
    )
    text_ns: float = 33.5
    text_ns_per_byte: float = 1.96
    least_text_ns: float = -24.0


GAINS = CellGains()


def gain_per_row(
    oids: Sequence[int], widths: Sequence[tuple[int, int]], *, records: int, gains: CellGains = GAINS
) -> float:
    """Return how many ns a row saves on average. `widths` are each column's values that are not null, and their bytes.

    >>> round(gain_per_row([23, 25], [(10, 40), (5, 50)], records=10), 2)
    16.05
    """
    return sum(_gain(oid, *width, gains) for oid, width in zip(oids, widths, strict=True)) / max(records, 1)


def _gain(oid: int, values: int, length_bytes: int, gains: CellGains) -> float:
    kind = KINDS[oid]
    if kind != "text":
        return values * gains.by_kind[kind]
    return max(values * gains.least_text_ns, length_bytes * gains.text_ns_per_byte - values * gains.text_ns)
