"""Records that break a key or foreign key which was parked: found when it cannot be rebuilt, put aside, tried again.

A load without such records pays nothing. Of others the keys of the rows that break it are looked for in the table, the
objects are read once more (late_search.py), and the records that have those keys are put aside in the transaction that
deletes their rows. When the key stands they are tried again in file order: the table itself judges each, and the first
one stays (docs/decisions/0010).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.loading.again import retry_keys
from penstock.loading.landing import with_locks
from penstock.loading.late_search import NotAllFound, Search, choose_needles
from penstock.model.reject import FOREIGN_KEY_VIOLATION, UNIQUE_VIOLATION
from penstock.server.errors import in_transaction
from penstock.server.shape.parts import is_foreign_key
from penstock.server.violations import Violations, make_stage

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.loading.prepare import PreparedLoad
    from penstock.loading.tools import LoadTools
    from penstock.loading.work import ObjectWork
    from penstock.model.plan import LoadPlan
    from penstock.model.shape import Change
    from penstock.model.table import TableFacts
    from penstock.server.connection import Connection
    from penstock.server.shape.rebuild import RowsDoNotFit

# What the server names where a key cannot be rebuilt for what rows hold.
_BROKEN = frozenset((UNIQUE_VIOLATION, FOREIGN_KEY_VIOLATION))


class LateRejects:
    """Puts aside the records of one load that a rebuild stumbles over. Methods raise PenstockError.

    `has_untried`: some that broke a foreign key are to be tried again, in file order with those that broke a key, which
    they may have kept out.
    """

    def __init__(self, plan: LoadPlan, prepared: PreparedLoad, tools: LoadTools) -> None:
        self._plan = plan
        self._prepared = prepared
        self._tools = tools
        # A run before this one may have been cut short between putting records aside and trying them again.
        self._has_untried_keys = self.has_untried = prepared.claim.is_resumed
        self._hinted: set[str] = set()

    def settle(self, connection: Connection, misfit: RowsDoNotFit) -> bool:
        """Put aside what a key cannot be rebuilt for; return whether it is worth trying again.

        Where rows are not this load's alone nothing is changed, and the error says so.
        """
        broken = [each for each in (misfit, *misfit.others) if each.sqlstate in _BROKEN]
        changes = [each.change for each in broken]
        works = self._find_works(changes)
        if not works:
            return False
        # Where other keys are broken too, which records stay depends on all.
        hint = self._take_hint(misfit) if len(broken) == 1 else None
        names = ", ".join(f'"{change.name}"' for change in changes)
        try:
            with in_transaction(connection, f"putting aside records that break {names}"):
                self._tools.ledger.hold_claim(connection, self._prepared.claim)
                count = self._put_aside(connection, changes, works, hint=hint)
        except NotAllFound as trouble:
            misfit.detail = f"{misfit.detail}\n{trouble}" if misfit.detail else str(trouble)
            return False
        if is_foreign_key(changes[0]):
            self.has_untried = True
        else:
            self._has_untried_keys = True
        self._tools.notice(
            f'{count:,} records of "{changes[0].target}" may break {names}: they are put aside, and tried again when'
            " that stands"
        )
        return True

    def try_keys_again(self, connection: Connection) -> None:
        """Try records again whose key was taken, in file order, where some may be untried: all keys stand now.

        Before foreign keys do: what refers to such a record would seem to refer to nothing.
        """
        if self._has_untried_keys:
            retry_keys(self._prepared.claim, self._tools, connection)
            self._has_untried_keys = False

    # ---------------------------------------------------------------- one key

    def _find_works(self, changes: Sequence[Change]) -> list[ObjectWork]:
        """Return the objects of the table that is parked, if this load has parked it."""
        if not changes or any(change.load_id != self._prepared.claim.load_id for change in changes):
            return []
        return [
            work
            for _, work in sorted(self._prepared.objects.items())
            if work.target.facts is not None and work.target.facts.oid == changes[0].relation_oid
        ]

    def _take_hint(self, misfit: RowsDoNotFit) -> str | None:
        """Return what the error tells of one key, the first time: perhaps there is no other."""
        change = misfit.change
        if is_foreign_key(change) or change.name in self._hinted:
            return None
        self._hinted.add(change.name)
        return misfit.detail

    def _put_aside(
        self, connection: Connection, changes: Sequence[Change], works: Sequence[ObjectWork], *, hint: str | None
    ) -> int:
        facts = works[0].target.facts
        assert facts is not None
        columns = _find_columns(changes, facts)
        make_stage(connection, facts, columns)
        broken = [Violations(connection, change, facts, number=number) for number, change in enumerate(changes)]
        for violations in broken:
            with_locks(
                violations.lock,
                plan=self._plan,
                tools=self._tools,
                connection=connection,
                relations=[facts.oid],
                what=f'delete rows of "{changes[0].target}"',
            )
        if hint is None or not broken[0].find(hint=hint):
            broken = [violations for violations in broken if violations.find()]
        if not broken:
            raise NotAllFound("The rows that break it were not found.")
        search = Search(self._prepared.claim.load_id, self._tools, connection, broken, changes=changes, columns=columns)
        needles = choose_needles(broken)
        if needles is None or not search.try_needles(works, needles):
            search.run(works, needles=None)
        if sum(violations.delete() for violations in broken) != search.count:
            raise NotAllFound("Not all of the rows that break it could be deleted.")
        return search.count


def _find_columns(changes: Sequence[Change], facts: TableFacts) -> list[str]:
    """Return the columns of the table that decide whether a row breaks keys or foreign keys."""
    written: set[str] = set()
    for change in changes:
        if is_foreign_key(change):
            # With their table, and as SQL writes them.
            own = f"{change.relation_oid}."
            written |= {key.removeprefix(own) for key in change.record["columns"] if key.startswith(own)}
        else:
            written |= set(change.record["columns"])
    return [
        column.name
        for column in facts.columns
        if {column.name, '"{}"'.format(column.name.replace('"', '""'))} & written
    ]
