"""The base class of the objects of penstock.api that hold sessions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Self


class Closing(ABC):
    """An object that the caller closes, by `close` or as a context manager."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @abstractmethod
    def close(self) -> None:
        """Close the sessions and files that the object holds."""
