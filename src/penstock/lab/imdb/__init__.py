"""IMDb's seven files, made up: the shape, skew and traps of the real ones at any scale, from a seed.

`tables` says what there is, `words` and `draws` hold the pools and the randomness, `titles` and `people` make
the rows, `writer` compresses them into files. Loading the files is left to others.
"""

from __future__ import annotations

from penstock.lab.imdb.tables import IMDB_TABLES, ImdbFile, ImdbProgress, expected_rows
from penstock.lab.imdb.writer import write_imdb

__all__ = ["IMDB_TABLES", "ImdbFile", "ImdbProgress", "expected_rows", "write_imdb"]
