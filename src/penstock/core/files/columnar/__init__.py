"""Parquet and Arrow files read, as COPY text and in the binary format. All of pyarrow is here."""
