"""What a load did: its files, and for recordings its plan and its steps in words."""

from __future__ import annotations

from penstock.frozen import frozen


@frozen
class FileOutcome:
    """One object's rows and the seconds from its first block to its last."""

    uri: str
    table: str
    rows: int
    seconds: float


@frozen
class LoadDetails:
    """What a recording keeps of a load's plan and outcome.

    `plan` says what the load was about to do, and `done` what the steps before and after the rows did: rows of cells.
    """

    files: tuple[FileOutcome, ...] = ()
    plan: tuple[tuple[str, ...], ...] = ()
    done: tuple[tuple[str, ...], ...] = ()
