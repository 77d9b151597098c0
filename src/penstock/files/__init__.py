"""Reads sources: listing, reading of the listed version, decompression, encodings, dialects, cutting into records.

Other rooms use SourceReader: it lists the objects of sources, samples objects, and opens them as streams of text.
Credentials are passed in as an object that this room calls (remote.stores.CredentialSource). The room does not use
boto3, servers or tables.
"""

from __future__ import annotations

from penstock.files.streams import ObjectStream, SourceReader

__all__ = ["ObjectStream", "SourceReader"]
