"""Reports a load's progress to a user's function. An exception of the function ends the load like an interrupt."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from penstock.core.errors import PenstockError
from penstock.loading.values.outcome import LoadProgress


class Listener:
    """Calls `on_progress` with the progress. If it raises an exception, the load gets a KeyboardInterrupt instead.

    After that, `on_progress` is not called any more.
    """

    def __init__(self, on_progress: Callable[[LoadProgress], None]) -> None:
        self._on_progress = on_progress
        self._failure: BaseException | None = None

    def __call__(self, progress: LoadProgress) -> None:
        """Call the function, unless it has raised an exception before."""
        if self._failure is not None:
            return
        try:
            self._on_progress(progress)
        except KeyboardInterrupt:
            raise
        except BaseException as exc:
            self._failure = exc
            raise KeyboardInterrupt from exc

    @contextmanager
    def raising(self) -> Iterator[None]:
        """Run the load in the block. If `on_progress` has raised an exception, raise that exception after the block.

        If the block raises a PenstockError because of this, the error's text becomes a note of the exception.
        """
        try:
            yield
        except PenstockError as error:
            if self._failure is None:
                raise
            self._failure.add_note(str(error))
        if self._failure is not None:
            raise self._failure
