"""Reads columnar files (Parquet, Arrow IPC) by pyarrow, the only package that imports it, as rows of COPY.

`ranged` is a seekable file over a pinned object, `reader` decodes row groups in batches, `types` names the types of
PostgreSQL, `text` and `binary` write batches as COPY reads them, `arrays` has what both need, and `spool` copies tables
in memory to files. Everything here needs pg-penstock[parquet]; callers import it only for columnar files, because
pyarrow takes 0.2 s to import.
"""
