"""Where a record stood in the files, as the columns of a staging table that follow the file's own.

Ordered by all three, records stand in file order: objects as the load numbers them, blocks by their offset, and within
a block (which one session sends in one COPY) by a number that rises with each row.
"""

from __future__ import annotations

# The object's number in the load: int.
OBJECT_COLUMN = "penstock_object"
# The offset of the record's block in the decompressed object, in bytes: bigint.
BLOCK_COLUMN = "penstock_block"
# Rises from record to record of a block; drawn by the server, so no file carries it: bigint.
SEQUENCE_COLUMN = "penstock_seq"

# What COPY sends behind the file's columns.
SENT_COLUMNS = (OBJECT_COLUMN, BLOCK_COLUMN)
POSITION_COLUMNS = (*SENT_COLUMNS, SEQUENCE_COLUMN)
