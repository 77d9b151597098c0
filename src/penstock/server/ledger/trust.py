"""Decides whether this session may use a ledger: code of other roles must not run with this session's privileges."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from penstock.errors import TargetError
from penstock.frozen import frozen


@frozen
class LedgerRelation:
    """The row of ledger_state.sql; `name` is None for the schema itself.

    `is_privileged` is whether the session can become a role that can do more than read and write tables. `additions`
    are objects that roles other than the owner have added, or privileges of such roles to add some.
    """

    name: str | None
    owner: str
    is_trusted: bool
    is_privileged: bool
    comment: str | None
    additions: list[str]


@contextmanager
def naming_ledger(schema: str) -> Iterator[None]:
    """Add to each "permission denied" error of the block the hint that the ledger is not granted to the role."""
    try:
        yield
    except TargetError as error:
        if error.sqlstate == "42501":
            error.hint = f"The ledger in schema {schema} is not granted to this role: have the database's owner run "
            error.hint += "penstock init --grant ROLE."
        raise


def refuse_foreign(schema: str, relations: Sequence[LedgerRelation]) -> None:
    """Raise TargetError if this session must not use the ledger because other roles could have their code run in it.

    The owner of a table can do this at any time, with a constraint, a default or a trigger. If trusted roles own all
    objects, this cannot change later: only the owner of an object can give it away, rename it or add to it.
    """
    for relation in relations:
        if not relation.is_trusted:
            raise _untrusted(_describe(schema, relation), relation)
    for relation in relations:
        if relation.additions:
            raise TargetError(
                f"cannot trust the ledger: others can have their code run in {_describe(schema, relation)}",
                detail=f"Found: {', '.join(relation.additions)}.",
                hint="It would run with your privileges: drop what is listed; revoke TRIGGER and REFERENCES, also in "
                "default privileges.",
            )


def _describe(schema: str, relation: LedgerRelation) -> str:
    return f'table "{schema}.{relation.name}"' if relation.name else f'schema "{schema}"'


def _untrusted(what: str, relation: LedgerRelation) -> TargetError:
    if not relation.is_privileged:
        return TargetError(
            f"cannot trust the ledger: {what} is not owned by the current role, the database owner or a superuser",
            detail=f'Its owner is "{relation.owner}".',
            hint="Find out who created it; penstock init says how to change its owner. With --role it can be used "
            "with that role's privileges only; --ledger-schema names another schema.",
        )
    return TargetError(
        f"cannot trust the ledger: {what} is not owned by this privileged login or a superuser",
        detail=f'Its owner is "{relation.owner}", who could have code run with this login\'s privileges.',
        hint=f'Name a schema of your own with --ledger-schema, or log in as "{relation.owner}". '
        "--role does not protect: code can RESET ROLE.",
    )
