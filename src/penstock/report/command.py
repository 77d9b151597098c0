"""`penstock report`: writes recordings as one HTML page. page.py draws it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.output import write_result


def report(
    recordings: Annotated[
        list[Path],
        typer.Argument(
            metavar="RECORDING...",
            show_default=False,
            help="Read these files of penstock watch --record or penstock load; several are shown side by side.",
        ),
    ],
    output: Annotated[
        Path, typer.Option("-o", "--output", metavar="FILE", help="Write the page to this file.", show_default=False)
    ],
) -> None:
    """Write an HTML page of recordings. It has what limits the workload, charts over time, files, plan and differences.

    The page is one file, and needs no network. Needs pip install 'pg-penstock[report]'.

    Exit codes: 0 written, 4 a file is not a recording, or has a newer format, or the page cannot be written.
    """
    from penstock.report.page import check_page, write_page
    from penstock.watch.recordings import read_recording

    check_page(output, sources=[str(path) for path in recordings])
    write_page(output, [(path.name, read_recording(path)) for path in recordings])
    write_result([f"wrote {output}"])
