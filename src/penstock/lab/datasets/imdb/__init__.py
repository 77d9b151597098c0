"""Generates IMDb's seven files from a seed, with the shape, skew and parsing traps of the real files, at any scale.

`tables` lists the tables, `words` has the pools of words, `titles` and `people` generate the rows, and `writer` writes
the files. Other packages load them.
"""

from __future__ import annotations

from penstock.lab.datasets.imdb.tables import IMDB_TABLES, expected_rows
from penstock.lab.datasets.imdb.writer import choose_tables, read_imdb, write_imdb

__all__ = ["IMDB_TABLES", "choose_tables", "expected_rows", "read_imdb", "write_imdb"]
