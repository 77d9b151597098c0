"""Reads the object that a call of aws_s3.table_import_from_s3 requests, and answers the call."""

from __future__ import annotations

import http.client
import re
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote, urlsplit

from penstock.errors import PenstockError, SourceError
from penstock.files.streams import SourceReader
from penstock.lab.s3.call import S3Call, take_call, write_answer

_REGION_TIMEOUT_S = 30

# With other characters in a bucket, or with slashes around a key, the URL would name something else.
_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def serve_call(file: Path, write: Callable[[bytes], None]) -> None:
    """Pass the object of a call to `write`, and write the answer: the object's size, or why it cannot be read.

    As on RDS, an object is decompressed only if its Content-Encoding is gzip. Raises UsageError, SourceError, and what
    `write` raises.
    """
    call = take_call(file)
    try:
        _check_place(call)
        _check_region(call)
        with SourceReader(credentials=call) as reader:
            source, encoding = reader.stat(call.uri)
            for piece in reader.read_bytes(source, decompresses=_is_gzip(encoding)):
                write(piece)
    except PenstockError as error:
        reason = {
            "message": error.message,
            "detail": error.detail or f"Region {call.region}, endpoint {call.endpoint_url or 'of AWS'}.",
            "hint": error.hint or "Check bucket, file path, region and credentials.",
        }
        write_answer(file, reason)
        raise
    write_answer(file, {"size_bytes": source.size_bytes})


def _is_gzip(encoding: str | None) -> bool:
    return "gzip" in [each.strip().lower() for each in (encoding or "").split(",")]


def _check_place(call: S3Call) -> None:
    """Raise SourceError if bucket and key, written as a URL, would be read as another bucket or key."""
    if _BUCKET.fullmatch(call.bucket) is None:
        raise SourceError(f'"{call.uri}" does not exist', detail=f'"{call.bucket}" is not the name of a bucket.')
    if call.key != call.key.strip("/"):
        raise SourceError(f'could not read "{call.uri}"', detail="A key that begins or ends with / is not supported.")


def _check_region(call: S3Call) -> None:
    """Raise SourceError if the bucket is in another region. S3 refuses such requests; moto would answer them."""
    if call.endpoint_url is None:
        return
    endpoint = urlsplit(call.endpoint_url)
    kind = http.client.HTTPSConnection if endpoint.scheme == "https" else http.client.HTTPConnection
    connection = kind(endpoint.netloc, timeout=_REGION_TIMEOUT_S)
    try:
        # S3 returns the region of a bucket even to requests without a signature.
        connection.request("HEAD", f"/{quote(call.bucket, safe='')}")
        actual = connection.getresponse().getheader("x-amz-bucket-region")
    except (OSError, http.client.HTTPException) as exc:
        raise SourceError(
            f'could not read "{call.uri}"', detail=f"{call.endpoint_url} does not answer: {exc}."
        ) from exc
    finally:
        connection.close()
    if actual is not None and actual != call.region:
        raise SourceError(
            f'could not read "{call.uri}"',
            detail=f'Bucket "{call.bucket}" is in region {actual}, not {call.region}.',
            hint="Name the region of the bucket.",
        )
