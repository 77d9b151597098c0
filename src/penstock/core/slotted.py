"""A decorator for classes of values: like dataclass(frozen=True), but it creates a class in a fraction of the time.

dataclass(frozen=True) writes and compiles the source of seven methods. That takes 0.45 ms a class, and a load uses 200
classes: a fifth of the time of a short command. Here only __init__ is compiled. The objects are not frozen: type
checkers reject an assignment to a field, but nothing prevents it while the program runs.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field, fields
from operator import attrgetter
from typing import TypeVar, dataclass_transform

_Class = TypeVar("_Class")


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(field,))
def slotted(cls: type[_Class]) -> type[_Class]:
    """Return the class as a dataclass with slots and keyword arguments. Its objects can be compared and hashed.

    The functions of dataclasses for such classes work, such as replace() and field(). Methods that the class itself
    defines are kept.
    """
    made = dataclass(slots=True, kw_only=True, eq=False, repr=False)(cls)
    found = fields(made)  # type: ignore[arg-type]  # a dataclass as of the line above
    compared = [each.name for each in found if each.compare]
    shown = [each.name for each in found if each.repr]
    read: Callable[[object], Hashable] = attrgetter(*compared) if compared else lambda _: ()

    def __eq__(self: object, other: object) -> bool:  # noqa: N807 (set below)
        return read(self) == read(other) if other.__class__ is self.__class__ else NotImplemented

    def __hash__(self: object) -> int:  # noqa: N807 (set below)
        return hash(read(self))

    def __repr__(self: object) -> str:  # noqa: N807 (set below)
        values = ", ".join(f"{name}={getattr(self, name)!r}" for name in shown)
        return f"{self.__class__.__qualname__}({values})"

    for method in (__eq__, __hash__, __repr__):
        # Python sets __hash__ to None in a class that defines only __eq__.
        if cls.__dict__.get(method.__name__) is None:
            setattr(made, method.__name__, method)
    return made
