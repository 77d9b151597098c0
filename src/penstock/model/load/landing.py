"""The columns of a staging table that hold the position of each record in the files.

These columns follow the file's own columns. A sort by all three puts records in file order. They are the object's
number in the load, the offset of the block, and a number that rises with each row of a block (one session sends a block
in one COPY).
"""

from __future__ import annotations

# The object's number in the load. Type int.
OBJECT_COLUMN = "penstock_object"
# The offset of the record's block in the decompressed object, in bytes. Type bigint.
BLOCK_COLUMN = "penstock_block"
# A number that rises from record to record of a block. The server assigns it, so COPY does not send it. Type bigint.
SEQUENCE_COLUMN = "penstock_seq"

# The columns that COPY sends after the file's columns.
SENT_COLUMNS = (OBJECT_COLUMN, BLOCK_COLUMN)
POSITION_COLUMNS = (*SENT_COLUMNS, SEQUENCE_COLUMN)
