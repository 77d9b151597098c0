"""`penstock cat`: prints objects as bytes, also for calls of the lab's S3 functions.

The functions of a lab's aws_s3 start this command for each call. So it does not import package api, which takes 0.3 s.
"""

from __future__ import annotations

import http.client
import os
import re
import select
import stat
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Annotated
from urllib.parse import quote, urlsplit

import typer

from penstock.cli.output import BROKEN_PIPE, naming_output_failure
from penstock.core.errors import PenstockError, SourceError, UsageError
from penstock.loading.files.streams import SourceReader
from penstock_lab.s3.call import S3Call, take_call, write_answer

_REGION_TIMEOUT_S = 30

# The bucket names that are accepted. With other characters, or with a key that begins or ends with a slash, the URL
# would name another object.
_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def serve_call(file: Path, write: Callable[[bytes], None]) -> None:
    """Pass the object that a call of aws_s3 in a lab asks for to `write`, and write the answer beside the call's file.

    The answer is the object's size, or why it cannot be read. As on RDS, an object is decompressed only if its
    Content-Encoding is gzip. Raises UsageError, SourceError, and what `write` raises.
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
    """Raise SourceError if the bucket is in another region. S3 refuses such requests, but moto would not."""
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


def cat(
    url: Annotated[
        str | None,
        typer.Argument(metavar="URL", help="A file, or a URL such as s3://bucket/key, as for penstock load."),
    ] = None,
    call: Annotated[
        Path | None,
        typer.Option(
            "--call",
            metavar="FILE",
            help="Print what a call of aws_s3.table_import_from_s3 in a lab asks for, and remove its FILE.",
        ),
    ] = None,
) -> None:
    """Print objects of S3 and other files, decompressed, as bytes.

    An object is read in the version that it had at first. Only what is complete ends with exit code 0.

    Exit codes: 0 printed, 2 no URL, 4 an object cannot be read, is truncated, or changed while it was read.
    """
    if (url is None) == (call is None):
        raise UsageError("a URL is needed" if url is None else "--call takes no URL", hint="See penstock cat --help.")
    _end_with_reader()
    if call is not None:
        serve_call(call, _write)
    elif url is not None:
        _print_objects(url)


def _print_objects(url: str) -> None:
    from penstock.core.aws.credentials import AwsCredentials
    from penstock.loading.files.streams import SourceReader

    with SourceReader(credentials=AwsCredentials()) as reader:
        for source in reader.list([url]):
            for piece in reader.read_bytes(source):
                _write(piece)


def _write(piece: bytes) -> None:
    with naming_output_failure():
        sys.stdout.buffer.write(piece)
        sys.stdout.buffer.flush()


def _end_with_reader() -> None:
    """End this process when nobody reads its output pipe any more, even while it waits for a source.

    The lab's servers run this command for a COPY. If the COPY is cancelled, the backend closes the pipe and waits until
    this process has ended.
    """
    number = sys.stdout.fileno()
    if not stat.S_ISFIFO(os.fstat(number).st_mode):
        return

    def watch() -> None:
        poll = select.poll()
        # POLLERR is always reported. It means that nobody reads the pipe any more.
        poll.register(number, 0)
        poll.poll()
        os._exit(BROKEN_PIPE)

    threading.Thread(target=watch, daemon=True).start()
