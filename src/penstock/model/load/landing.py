"""The columns of a staging table that hold the position of each record in the files.

They follow the file's own columns. Ordered by all three, records are in file order: by the object's number in the load,
by the offset of the block, and within a block (which one session sends in one COPY) by a number that rises with each
row.
"""

from __future__ import annotations

# The object's number in the load: int.
OBJECT_COLUMN = "penstock_object"
# The offset of the record's block in the decompressed object, in bytes: bigint.
BLOCK_COLUMN = "penstock_block"
# Rises from record to record of a block; the server assigns it, so COPY does not send it: bigint.
SEQUENCE_COLUMN = "penstock_seq"

# The columns that COPY sends after the file's columns.
SENT_COLUMNS = (OBJECT_COLUMN, BLOCK_COLUMN)
POSITION_COLUMNS = (*SENT_COLUMNS, SEQUENCE_COLUMN)
