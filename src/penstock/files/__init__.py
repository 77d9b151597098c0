"""Where bytes come from: listing, pinned reads, decompression, encodings, dialects, record cuts.

SourceReader is the way in: it lists what sources stand for, samples objects and opens them as streams of
text. Credentials reach this room as an object it calls (remote.stores.CredentialSource); it knows no boto3, no
server, no table.
"""

from __future__ import annotations

from penstock.files.streams import ObjectStream, SourceReader

__all__ = ["ObjectStream", "SourceReader"]
