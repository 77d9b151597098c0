"""Facts of a server and of a file, for plans that no server has made."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.core.values.server import ServerFacts
from penstock.core.values.source import ObjectSample

if TYPE_CHECKING:
    from penstock.core.values.source import Compression, SourceObject

SERVER = ServerFacts(
    version_num=180004,
    version="18.4",
    database="shop",
    user='o"brien',
    server_encoding="UTF8",
    free_connections=90,
    is_local=False,
    is_in_recovery=False,
    address="host=db1",
)


def sample_of(source: SourceObject, compression: Compression = "none") -> ObjectSample:
    """Return the sample of an object without text."""
    return ObjectSample(source=source, compression=compression, head=b"", is_whole=True)
