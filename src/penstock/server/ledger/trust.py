"""Whether a ledger's schema and tables may be used: nobody else's code may run in them as whoever loads."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.errors import TargetError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerRelation:
    """The row of ledger_state.sql; the schema itself has no name."""

    name: str | None
    owner: str
    is_trusted: bool
    comment: str | None
    additions: list[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerRightsRow:
    """The row of inspect_ledger.sql; `owner` is None without the schema."""

    owner: str | None
    may_create: bool
    may_write: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class PublicationRow:
    """The row of ledger_publications.sql."""

    name: str


@contextmanager
def naming_ledger(schema: str) -> Iterator[None]:
    """Have an error for what a role may not do in the block say that this is the ledger's, and not the table's."""
    try:
        yield
    except TargetError as error:
        if error.sqlstate == "42501":
            error.hint = f"The ledger in schema {schema} is not granted to this role: have the database's owner run "
            error.hint += "penstock init --grant ROLE."
        raise


def refuse_foreign(schema: str, relations: Sequence[LedgerRelation], *, allowed: Sequence[str] = ()) -> None:
    """Raise TargetError where a part of the ledger belongs to somebody else or carries what the ledger does not make.

    A trigger, rule or policy there would run with the rights of whoever loads, a superuser perhaps. `allowed` are the
    ledger's own additions, as ledger_state.sql spells them.
    """
    for relation in relations:
        what = f'table "{schema}.{relation.name}"' if relation.name else f'schema "{schema}"'
        if not relation.is_trusted:
            raise TargetError(
                f"cannot trust the ledger: {what} is not owned by the current role, the database owner or a superuser",
                detail=f'Its owner is "{relation.owner}", or it is not a plain table.',
                hint="Find out who created it; penstock init says how to change its owner. With --role it can be used "
                "with that role's privileges only; --ledger-schema names another schema.",
            )
        foreign = [addition for addition in relation.additions if addition not in allowed]
        if foreign:
            raise TargetError(
                f"cannot trust the ledger: {what} has objects that penstock did not create",
                detail=f"Found: {', '.join(foreign)}.",
                hint="They would run with your privileges: find out who created them, and drop them.",
            )
