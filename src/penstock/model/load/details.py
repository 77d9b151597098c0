"""What a load did: its files, and for recordings its plan and its steps in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.frozen import frozen

if TYPE_CHECKING:
    from penstock.errors import PenstockError


@frozen
class FileOutcome:
    """One object's rows and the seconds from its first block to its last."""

    uri: str
    table: str
    rows: int
    seconds: float


def describe_error(error: PenstockError) -> str:
    """Return why an object could not be read: the message of an error and its detail."""
    return error.message if error.detail is None else f"{error.message}: {error.detail}"


@frozen
class LoadDetails:
    """What a recording keeps of a load's plan and outcome. The plan and the steps are rows of cells."""

    files: tuple[FileOutcome, ...] = ()
    # What the load was about to do.
    plan: tuple[tuple[str, ...], ...] = ()
    # What the steps before and after the rows did.
    done: tuple[tuple[str, ...], ...] = ()


@frozen
class UnreadableObject:
    """An object that a load could not read to its end, so that it was not loaded."""

    uri: str
    # The table into which the object would have been loaded.
    table: str
    reason: str
