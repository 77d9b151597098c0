"""Tests that the classes of `slotted` behave as those of dataclass(frozen=True) do, but for assignments."""

from __future__ import annotations

import copy
import pickle
from dataclasses import asdict, dataclass, field, fields, replace

import pytest

from penstock.core.slotted import slotted


@slotted
class Point:
    """A class with each kind of field."""

    x: int
    name: str = "p"
    tags: tuple[str, ...] = ()
    secret: str = field(default="s3cret", repr=False)
    cached: int = field(default=0, compare=False)


@slotted
class Named(Point):
    """A class that inherits fields, and has a method of its own in place of a shared one."""

    y: int

    def __repr__(self) -> str:
        return f"<{self.name}>"


@slotted
class Empty:
    """A class without a field."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """What `Point` must behave like."""

    x: int
    name: str = "p"
    tags: tuple[str, ...] = ()
    secret: str = field(default="s3cret", repr=False)
    cached: int = field(default=0, compare=False)


def test_objects_are_equal_and_hashed_by_the_fields_that_are_compared() -> None:
    """Objects of another class never are, as for dataclasses."""
    point = Point(x=1, cached=1)
    assert point == Point(x=1, cached=2)
    assert {point, Point(x=1, cached=2), Point(x=2)} == {point, Point(x=2)}
    assert point != Point(x=1, secret="other")
    assert point != Named(x=1, y=2)
    assert Named(x=1, y=2) != Named(x=1, y=3)
    assert point != Model(x=1)
    assert Empty() == Empty()
    assert hash(Empty()) == hash(Empty())


def test_representation_is_that_of_a_dataclass_and_hides_what_it_hides() -> None:
    """Passwords are such fields."""
    assert repr(Point(x=1, tags=("a",))) == repr(Model(x=1, tags=("a",))).replace("Model", "Point")
    assert "s3cret" not in repr(Point(x=1))
    assert repr(Named(x=1, y=2)) == "<p>"
    assert repr(Empty()) == "Empty()"


def test_what_dataclasses_offers_works() -> None:
    """The rest of the code uses it."""
    assert replace(Point(x=1), x=2) == Point(x=2)
    assert [each.name for each in fields(Named)] == ["x", "name", "tags", "secret", "cached", "y"]
    assert asdict(Point(x=1)) == asdict(Model(x=1))
    assert Point.__match_args__ == Model.__match_args__
    with pytest.raises(TypeError):
        Point(1)  # type: ignore[call-arg, misc]
    assert not hasattr(Point(x=1), "__dict__")


def test_objects_are_copied_and_pickled() -> None:
    """As where members of a load are started by Ray."""
    point = Point(x=1, tags=("a", "b"))
    assert copy.copy(point) == pickle.loads(pickle.dumps(point)) == point  # noqa: S301 (our own)
