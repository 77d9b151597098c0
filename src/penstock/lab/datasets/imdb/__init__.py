"""IMDb's seven files, made up: the shape, skew and traps of the real ones at any scale, from a seed.

`tables` says what there is, `words` holds the pools, `titles` and `people` make the rows, `writer` has them written.
Loading the files is left to others.
"""

from __future__ import annotations

from penstock.lab.datasets.imdb.tables import IMDB_TABLES, expected_rows
from penstock.lab.datasets.imdb.writer import write_imdb

__all__ = ["IMDB_TABLES", "expected_rows", "write_imdb"]
