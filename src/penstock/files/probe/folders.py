"""Reads the values that names of folders state as Hive writes them: .../year=2026/month=07/part-0.parquet. Pure."""

from __future__ import annotations

from typing import Final
from urllib.parse import unquote

# What Hive writes for null.
_NULL: Final = "__HIVE_DEFAULT_PARTITION__"


def read_folder_values(uri: str) -> dict[str, str | None]:
    """Return the values by name, in the order of the folders; None is null.

    >>> read_folder_values("s3://b/sales/year=2026/city=S%C3%A3o%20Paulo/day=__HIVE_DEFAULT_PARTITION__/0.parquet")
    {'year': '2026', 'city': 'São Paulo', 'day': None}
    """
    folders = uri.split("/")[:-1]
    if uri.startswith(("http://", "https://")):
        # Of the URL's own encoding; what Hive has encoded is encoded twice.
        folders = [_decode(folder) for folder in folders]
    stated = [folder.partition("=") for folder in folders if "=" in folder[1:]]
    return {_decode(name): None if value == _NULL else _decode(value) for name, _, value in stated}


def _decode(text: str) -> str:
    """Return percent-encoded text; what is not UTF-8 then is returned as it is, and so was not encoded by Hive."""
    try:
        return unquote(text, errors="strict")
    except UnicodeDecodeError:
        return text
