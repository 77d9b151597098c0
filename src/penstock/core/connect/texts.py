"""Converts texts of the server to str, even if their bytes are in no known encoding."""

from __future__ import annotations

import codecs
import json
from typing import TYPE_CHECKING, Any, Final

from psycopg.adapt import Loader
from psycopg.pq import Format

if TYPE_CHECKING:
    from psycopg import Connection
    from psycopg.abc import Buffer

# The types whose values are received as texts. 0 means every type without its own loader. If client_encoding is
# SQL_ASCII, psycopg loads these types as bytes.
_TEXTS: Final = (0, "text", "name", "varchar", "bpchar", '"char"')
_JSON: Final = ("json", "jsonb")

# The name of the error handler of codecs that shows invalid bytes as escapes such as <e9>. An escape has no backslash,
# because a backslash would be an escape in JSON, and would hide where a literal of a statement ends.
_AS_ESCAPES: Final = "penstock.escapes"


def _escape(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeDecodeError)
    return "".join(f"<{byte:02x}>" for byte in error.object[error.start : error.end]), error.end


codecs.register_error(_AS_ESCAPES, _escape)


def receive_any_text(connection: Connection[tuple[Any, ...]]) -> None:
    """Make a session receive text in the database's encoding and decode it without errors: invalid bytes become <e9>.

    The text of a statement of another database is in that database's encoding, and an SQL_ASCII database may contain
    any bytes. The server would refuse to convert such text.
    """
    name = connection.info.parameter_status("server_encoding") or ""
    try:
        encoding = codecs.lookup(name.replace("WIN", "cp").replace("KOI8", "koi8_")).name
    except LookupError:
        # Either Python does not know the encoding, or the database is SQL_ASCII, whose texts may be in any encoding.
        name, encoding = "SQL_ASCII", "utf-8"
    connection.execute("SELECT pg_catalog.set_config('client_encoding', %s, false)", [name])

    def decode(data: bytes) -> str:
        try:
            return data.decode(encoding)
        except UnicodeDecodeError:
            return data.decode("utf-8", _AS_ESCAPES)

    class Text(Loader):
        def load(self, data: Buffer) -> str:
            return decode(bytes(data))

    class BinaryText(Text):
        format = Format.BINARY

    class Json(Loader):
        def load(self, data: Buffer) -> object:
            return json.loads(decode(bytes(data)))

    for kind in _TEXTS:
        connection.adapters.register_loader(kind, Text)
        if kind:
            connection.adapters.register_loader(kind, BinaryText)
    for kind in _JSON:
        connection.adapters.register_loader(kind, Json)
