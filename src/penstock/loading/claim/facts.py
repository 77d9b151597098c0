"""Reads the ledger, and finds which files have changed, so that decide.py can decide about each object.

This module also checks the beginnings of the objects that the decision adds to the load.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import compress

from penstock.core.catalogue.catalog import find_table
from penstock.core.catalogue.tables import CreatedTable, LoadedTable, is_empty
from penstock.core.connect.connection import Connection
from penstock.core.connect.search_path import find_creation_schema
from penstock.core.errors import TargetError, UsageError
from penstock.core.values.source import HIDDEN, hides_part, selecting_part
from penstock.core.values.table import TableFacts, TableName
from penstock.ledger.committed import find_others, read_ranges
from penstock.ledger.listing import no_such_load
from penstock.ledger.lookup import find_loaded, read_meaning
from penstock.ledger.rights import read_rights
from penstock.ledger.values import UNKNOWN_CHECKSUM, KnownObject, LedgerObject
from penstock.loading.claim.decide import ClaimFacts, LoadDecision, find_known, refuse_unknown
from penstock.loading.context import LoadTools
from penstock.loading.files.listing import is_remote, lasting_name, recorded_name
from penstock.loading.formats import format_of
from penstock.loading.formats.format import Depth
from penstock.loading.imports import route
from penstock.loading.land.context import TargetLanding
from penstock.loading.plan.dialects import refuse_other_dialects
from penstock.loading.plan.identity import describe_changes, describe_meaning, digest, job_to_json
from penstock.loading.plan.notices import unpublished_notice
from penstock.loading.values.objects import PlannedObject, all_objects, ledger_object
from penstock.loading.values.plan import LoadPlan, table_after_creation


class FactsReader:
    """Reads what decides which objects one load loads. If `resumes` is given, the load must be the one with this id."""

    def __init__(self, plan: LoadPlan, tools: LoadTools, connection: Connection, *, resumes: str | None) -> None:
        self.plan = plan
        self.tools = tools
        self.connection = connection
        self._resumes = resumes
        self._sources = [[lasting_name(source) for source in target.job.sources] for target in plan.targets]
        is_unnamed = any(target.table.schema is None for target in plan.targets)
        self._new_schema = find_creation_schema(connection) if is_unnamed else None
        # The lock's key is made from the tables' names, because a table that is not created yet has no oid.
        self.lock = digest(self._meaning([0] * len(plan.targets)))

    def read(self, created: Mapping[TableName, CreatedTable]) -> ClaimFacts:
        """Return the load's objects as they are now, and what the ledger knows of them.

        `created` are the tables created for the load, by their names in the job. A local file whose version has changed
        but not its size is read and compared with the checksums in the ledger. Raises the error that the plan has
        stored for a target unless all its objects are loaded already, and TargetError if the load `resumes` cannot be
        resumed or is another role's. Raises PenstockError if the ledger, a table or a file cannot be read.
        """
        works = all_objects(self.plan.targets)
        items = self._items(works, created)
        meaning = self._meaning(target_oids(self.plan, created))
        found = self.tools.ledger.look_up(self.connection, digest(meaning), items, lock=self.lock)
        known, running = self._match_unchanged_files(works, items, found.known), found.running
        refuse_unknown(works, items, known)
        if self.plan.job.rules.changed == "skip" and not self.plan.job.rules.again:
            _refuse_selecting(works, items, known)
        if self._resumes is not None and running != self._resumes:
            raise self._refuse_resuming(self._resumes, meaning)
        if (
            running is not None
            and (rights := read_rights(self.connection, self.tools.ledger.schema, running)) is not None
        ):
            rights.refuse_other_role("resume")
        # What a transform leaves in the table is the statement's business: it may delete the last row.
        oids = zip(target_oids(self.plan, created), self.plan.targets, strict=True)
        filled = {oid for oid, target in oids if target.job.transform is None}
        with_rows = {each.target_oid for each in known if each.rows} & {item.target_oid for item in items} & filled
        return ClaimFacts(
            works=works,
            items=items,
            found=replace(found, known=known),
            emptied=frozenset(oid for oid in with_rows if is_empty(self.connection, oid)),
            meaning=meaning,
            created=created,
        )

    def job_text(self) -> str | None:
        """Return the job as JSON for the ledger. Names of files in it do not depend on the current directory.

        A URL shows whether a part of it is left out. Returns None if a source can be read only once, such as a pipe.
        """
        if not self.plan.is_repeatable:
            return None
        targets = tuple(
            replace(target, sources=tuple(map(_name_in_job, target.sources))) for target in self.plan.job.targets
        )
        return job_to_json(replace(self.plan.job, targets=targets))

    def find_left(self, load_id: str, created: Mapping[TableName, CreatedTable]) -> tuple[str, ...]:
        """Return the URIs of the objects that neither the complete load `load_id` nor an earlier load has loaded.

        `created` are the tables created for the load, by their names in the job. Without --join, the result is empty,
        because no object is left to another load. Raises ServerError.
        """
        if not self.plan.job.rules.join:
            return ()
        listed = {each.uri for each in find_others(self.connection, self.tools.ledger.schema, load_id, [])}
        absent = [work for work in all_objects(self.plan.targets) if recorded_name(work.source) not in listed]
        # No earlier load has loaded into a table that the load has created.
        is_new = bool(self.plan.created_names) and not created
        if not absent or is_new or self.plan.job.rules.again:
            return tuple(recorded_name(work.source) for work in absent)
        items = self._items(absent, created)
        found = self.tools.ledger.look_up(self.connection, "", items, lock=self.lock)
        complete = {(each.uri, each.target_oid) for each in found.known if each.state == "complete"}
        return tuple(
            item.uri
            for work, item in zip(absent, items, strict=True)
            if work.is_fresh or (item.uri, item.target_oid) not in complete
        )

    def _meaning(self, oids: list[int]) -> str:
        settings = self.tools.connect.input_settings
        return describe_meaning(
            self.plan, oids=oids, sources=self._sources, settings=settings, new_schema=self._new_schema
        )

    def _items(self, works: Sequence[PlannedObject], created: Mapping[TableName, CreatedTable]) -> list[LedgerObject]:
        oids, schemas = target_oids(self.plan, created), {made.oid: made.name.schema for made in created.values()}
        items = []
        for work in works:
            oid, table = oids[work.target_index], work.target.table
            name = table if table.schema is not None else replace(table, schema=schemas.get(oid, ""))
            unit = format_of(work.target).unit
            items.append(ledger_object(work.source, number=work.number, target_oid=oid, target=name, unit=unit))
        return items

    def _match_unchanged_files(
        self, works: Sequence[PlannedObject], items: Sequence[LedgerObject], known: Sequence[KnownObject]
    ) -> list[KnownObject]:
        """Return `known`, with the present version of each file if only its inode or times have changed.

        A loaded file that has the same size now is read and compared with the checksums in the ledger.
        """
        rules, matched = self.plan.job.rules, list(known)
        for work, item, at in zip(works, items, find_known(items, known), strict=True):
            is_asked = not (rules.again or rules.changed == "skip" or is_remote(work.source.location) or work.is_fresh)
            if not is_asked or item.version is None or any(matched[each].version == item.version for each in at):
                continue
            for each in at:
                former = matched[each]
                if former.state == "complete" and former.size_bytes == item.size_bytes:
                    was = replace(work, number=former.number)
                    is_same = is_unchanged(former.load_id, was, self.tools, self.connection)
                    # Without checksums, the size and the time of modification decide: only the inode is another one.
                    if is_same is None and former.version is not None:
                        is_same = former.version.partition(":")[2] == item.version.partition(":")[2]
                    if is_same:
                        matched[each] = replace(former, version=item.version)
        return matched

    def _refuse_resuming(self, load_id: str, meaning: str) -> TargetError:
        """Return the error for a load that cannot be resumed: unknown, complete, or with other sources or options."""
        known = read_meaning(self.connection, self.tools.ledger.schema, load_id)
        if known is None:
            return no_such_load(load_id)
        if known.state == "complete":
            return TargetError(f"load {load_id} is complete", hint="There is nothing to resume.")
        changes = describe_changes(known.meaning, meaning)
        return TargetError(
            f"cannot resume load {load_id}: source or options changed since",
            detail="\n".join(changes) or None,
            hint="Restore it as it was when the load began, or remove the load's rows and run "
            f"penstock loads forget {load_id} --keep-rows.",
        )


def target_oids(plan: LoadPlan, created: Mapping[TableName, CreatedTable]) -> list[int]:
    """Return the oid of each target's table in the order of the job. Tables just created are looked up in `created`."""
    return [target.facts.oid if target.facts is not None else created[target.table].oid for target in plan.targets]


def read_targets(plan: LoadPlan, created: Mapping[TableName, CreatedTable], connection: Connection) -> list[TableFacts]:
    """Return what the catalogue says of each target's table, in the order of the job, including tables just created."""
    facts = []
    for target in plan.targets:
        found = target.facts
        if found is None:
            made = created[target.table]
            if target.needs_more_than_copy or target.create_types is not None:
                found = find_table(connection, made.name)
            found = found or replace(table_after_creation(target), oid=made.oid)
        facts.append(found)
    return facts


def map_tables(
    plan: LoadPlan,
    facts: Sequence[TableFacts],
    created: Mapping[TableName, CreatedTable],
    landings: Sequence[TargetLanding],
) -> dict[TableName, LoadedTable]:
    """Return the tables that COPY fills, by the names that COPY commands use for them.

    These are the targets, and the tables created for records that are stored in a target later. `facts` are the
    targets' tables in the order of the job. `created` are the tables created for the load, by their names in the job.
    """
    made = {table.oid: table.name for table in created.values()}
    tables = {
        made.get(found.oid, target.table): LoadedTable(made.get(found.oid, found.name), found.oid, found.columns)
        for target, found in zip(plan.targets, facts, strict=True)
    }
    for landing in landings:
        if landing.table is not None and landing.record.oid is not None:
            tables[landing.table] = LoadedTable(landing.table, landing.record.oid)
    return tables


# ---------------------------------------------------------------- the objects themselves


def is_unchanged(load_id: str, work: PlannedObject, tools: LoadTools, connection: Connection) -> bool | None:
    """Return whether an object still has the content that a complete load has recorded of it.

    `load_id` is that load, and `work.number` is the object's number in it. The object is read and compared with the
    checksums in the ledger. Returns None if the ledger has no checksums: the object had no records, the server imported
    it, or the load was pruned. Raises PenstockError.
    """
    committed = read_ranges(connection, tools.ledger.schema, load_id, work.number)
    checksums = [row.checksum for row in committed if row.ranges]
    if not checksums or UNKNOWN_CHECKSUM in checksums:
        return None
    return format_of(work.target).compare(work, committed, tools) == "same"


def check_objects(
    facts: ClaimFacts, decision: LoadDecision, plan: LoadPlan, tools: LoadTools, *, depth: Depth = "columns"
) -> None:
    """Check the beginning of each object that is new or may have changed, and warn of renamed objects.

    An object is renamed if it seems to be one that was loaded into the same table under another name. Raises DataError
    if an object has another dialect than the first object of its table. Raises TargetError or DataError if an object's
    header does not fit the table. Raises TargetError if the load itself has rows of a renamed object. With depth
    "records", the first records are checked against the table, too. Raises UsageError if an option names a column that
    no object has.

    Raises SourceError or DataError if the server is to import an object and cannot import it unchanged. All objects of
    a resumed load are checked for this, because an earlier run may have sent their rows from the client instead.
    """
    unseen = [each.action == "new" or each.is_changed for each in decision.objects]
    works = list(compress(facts.works, unseen))
    refuse_other_dialects(works, tools.sources, tools.warnings, depth=depth, targets=plan.targets)
    _check_renamed(facts, decision, tools, keeps_changed=plan.job.rules.changed == "skip")
    check_importable(plan, list(compress(facts.works, [each.is_part for each in decision.objects])), tools)


def check_depth(plan: LoadPlan) -> Depth:
    """Return how much of each object's first block the plan checks: "records" if the load stops at a bad record.

    Otherwise it is "columns", because bad records are rejected and are no error of the plan.
    """
    return "records" if plan.job.rules.on_error == "stop" else "columns"


def check_importable(plan: LoadPlan, works: Sequence[PlannedObject], tools: LoadTools) -> None:
    """If the plan lets the server import objects, raise SourceError or DataError if it cannot import one unchanged."""
    if plan.route.is_import:
        route.check_importable(works, tools.sources)


def _check_renamed(facts: ClaimFacts, decision: LoadDecision, tools: LoadTools, *, keeps_changed: bool) -> None:
    """Warn if a new object was loaded into the same table under another name.

    Raises TargetError if the load itself has committed rows of it, and the other name is gone or that of another file.
    `keeps_changed` is whether the load keeps what it has loaded of changed files.
    """
    renamed, listed = facts.found.renamed, {item.uri: item.version for item in facts.items}
    found = []
    for work, each in zip(facts.works, decision.objects, strict=True):
        if each.action != "new" or each.item.number not in renamed:
            continue
        other, load_id = renamed[each.item.number]
        if load_id == facts.found.running:
            is_kept = work.target.fills_table or (keeps_changed and other in listed)
            # A hard link has the same version.
            if is_kept and listed.get(other) != each.item.version:
                raise _renamed_meanwhile(each.item.uri, other, load_id)
        elif each.number in decision.unshared:
            found.append(each.item)
    if not found:
        return
    other, load_id = renamed[found[0].number]
    more = f" (and {len(found) - 1} more like it)" if len(found) > 1 else ""
    tools.warnings.warn(
        "renamed",
        f'"{found[0].uri}" may be "{other}" under another name, which load {load_id} has loaded'
        f" into the same table: {_kept(other)} are the same{more}",
        uri=found[0].uri,
    )


def _renamed_meanwhile(uri: str, other: str, load_id: str) -> TargetError:
    return TargetError(
        f'"{uri}" is "{other}" under another name, which this load has begun to load',
        detail=f"Load {load_id} is not complete, and would load its rows twice: {_kept(other)} are the same.",
        hint="Give it its name back until the load is complete.",
    )


def _kept(uri: str) -> str:
    return "size and ETag" if is_remote(uri) else "size, inode and time of modification"


def warn_of_unpublished(plan: LoadPlan, tools: LoadTools, ledger: Connection | None = None) -> None:
    """Warn of target tables that no publication publishes although other tables are published.

    If `ledger` is given, it is a session in which the ledger is read. Tables that loads have filled before are not
    warned of then.
    """
    facts = {target.table: target.facts for target in plan.targets if target.facts is not None}
    found = {table: notice for table, each in facts.items() if (notice := unpublished_notice(each)) is not None}
    if found and ledger is not None:
        for table in find_loaded(ledger, tools.ledger.schema, list(found)):
            del found[table]
    for notice in found.values():
        tools.warnings.add(notice)


def _name_in_job(source: str) -> str:
    return lasting_name(source) + HIDDEN * hides_part(source)


def _refuse_selecting(
    works: Sequence[PlannedObject], items: Sequence[LedgerObject], known: Sequence[KnownObject]
) -> None:
    """Raise UsageError if --changed skip would leave out another object than the one that was loaded by its URL."""
    for work, item, indexes in zip(works, items, find_known(items, known), strict=True):
        former = [known[index].version for index in indexes if known[index].target_oid == item.target_oid]
        if former and item.version not in former and selecting_part(work.source.location):
            raise UsageError(
                f'--changed skip cannot be used with the query of "{work.source.uri}"',
                detail="The ledger does not have the query, so another object of this URL would count as loaded.",
                hint="Use --changed load, or download the file.",
            )
