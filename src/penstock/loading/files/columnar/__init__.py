"""Reads Parquet and Arrow files as COPY text or in COPY's binary format. Only this package imports pyarrow."""
