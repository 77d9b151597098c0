"""`penstock cat`: prints objects as bytes.

The functions of a lab's aws_s3 start it for each call, so it does not import package api, which takes 0.3 s.
"""

from __future__ import annotations

import os
import select
import stat
import sys
import threading
from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.terminal.exit_codes import BROKEN_PIPE
from penstock.cli.terminal.output import naming_output_failure
from penstock.errors import UsageError


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
        from penstock.lab.s3.reader import serve_call

        serve_call(call, _write)
    elif url is not None:
        _print_objects(url)


def _print_objects(url: str) -> None:
    from penstock.aws.credentials import AwsCredentials
    from penstock.files.streams import SourceReader

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

    If a COPY is cancelled, its backend waits until the program has ended.
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
