"""Decides from the ledger which objects are loaded, resumed or skipped, or left to other loads. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace

from penstock.core.catalogue.tables import CreatedTable
from penstock.core.errors import LeftOutError, SourceError, TargetError, UsageError
from penstock.core.slotted import slotted
from penstock.core.units import count_nouns
from penstock.core.values.job import LoadRules
from penstock.core.values.mode import RoutePlan
from penstock.core.values.table import TableName
from penstock.ledger.lookup import LedgerFindings
from penstock.ledger.values import KnownObject, LedgerObject, ObjectAction
from penstock.loading.plan.order import TargetOrder
from penstock.loading.values.objects import PlannedObject

# An error names at most this many objects.
_NAMED = 10


@slotted
class ObjectDecision:
    """What a load does with one object: add it to the load, resume it, skip it, or leave it to another load."""

    item: LedgerObject
    # "new": the object is added to the load. "resume": it is part of the load already. "skip": it is loaded already.
    # "left": it is left to another load, because a load by several hosts gets no objects after its start.
    action: ObjectAction
    # The object's number in the load, -1 if it is not part of the load.
    number: int
    # Whether the committed part must be compared with the object, because its version is different now or unknown, or
    # because the object may have been written to in place.
    is_changed: bool = False

    @property
    def is_part(self) -> bool:
        """Whether the object is part of the load."""
        return self.action in ("new", "resume")


@slotted
class ClaimFacts:
    """What decides which objects a load loads: the objects as they are now, and what the ledger knows of them."""

    # The load's objects in the order of the job, and the same objects as the ledger records them.
    works: Sequence[PlannedObject]
    items: Sequence[LedgerObject]
    # What the ledger has recorded.
    found: LedgerFindings
    # The oids of the targets that are empty although loads have stored rows in them.
    emptied: frozenset[int]
    # The hash that identifies the load (see plan/identity.py).
    meaning: str
    # The tables created for the load, by their names in the job.
    created: Mapping[TableName, CreatedTable]


@slotted
class LoadDecision:
    """What is done with each object of a load."""

    objects: Sequence[ObjectDecision]
    # The numbers of the new objects that no other load may have. The set is empty with --again. It never contains
    # objects that are loaded regardless of earlier loads.
    unshared: frozenset[int]

    @property
    def skipped(self) -> int:
        """Return the number of objects that are loaded already."""
        return sum(each.action == "skip" for each in self.objects)

    @property
    def is_nothing(self) -> bool:
        """Whether every object is loaded already."""
        return self.skipped == len(self.objects)

    @property
    def new(self) -> list[LedgerObject]:
        """Return the objects to add to the load, each with its number in the load."""
        return [replace(each.item, number=each.number) for each in self.objects if each.action == "new"]

    @property
    def left(self) -> tuple[str, ...]:
        """Return the URIs of the objects that are left to another load."""
        return tuple(each.item.uri for each in self.objects if each.action == "left")


@slotted
class NothingToDo:
    """The result if this process has nothing to load, and has recorded no load.

    Every object is loaded already, or is in `left`.
    """

    # How many objects are loaded already.
    skipped: int
    # The id of the load by several hosts that this process has waited for.
    waited_for: str = ""
    # The URIs of the objects that are not loaded, because they are not part of the load `waited_for`.
    left: tuple[str, ...] = ()
    # The changes of tables that are not restored yet (see LedgerFindings).
    changed_by: Mapping[int, Collection[str]] = field(default_factory=dict)
    server_holds: Sequence[str] = ()


def decide_load(facts: ClaimFacts, rules: LoadRules, *, host: str = "") -> LoadDecision:
    """Return what is done with each object. `host` is the name of this host.

    Raises the errors of `decide_objects`, and a target's `refusal` if one of its objects is not skipped.
    """
    works, found = facts.works, facts.found
    decisions = decide_objects(
        facts.items,
        found.known,
        running=found.running,
        next_number=found.next_number,
        emptied=facts.emptied,
        rules=rules,
        landed=frozenset(work.number for work in works if not work.target.fills_table),
        fresh=frozenset(work.number for work in works if work.is_fresh),
        updating=frozenset(work.number for work in works if work.target.landing.updates),
        host=host,
    )
    unshared = set()
    for work, decision in zip(works, decisions, strict=True):
        if decision.action != "skip" and work.target.refusal is not None:
            raise work.target.refusal
        if decision.action == "new" and not rules.again and not work.is_fresh:
            unshared.add(decision.number)
    return LoadDecision(objects=decisions, unshared=frozenset(unshared))


def group_objects(facts: ClaimFacts, decision: LoadDecision) -> dict[int, list[int]]:
    """Return the numbers of the load's objects in the ledger, grouped by the index of their target in the job.

    Objects that are not part of the load are left out.
    """
    objects: dict[int, list[int]] = {}
    for work, each in zip(facts.works, decision.objects, strict=True):
        if each.is_part:
            objects.setdefault(work.target_index, []).append(each.number)
    return objects


def refuse_unknown(works: Sequence[PlannedObject], items: Sequence[LedgerObject], known: Sequence[KnownObject]) -> None:
    """Raise the error that the plan has stored for a target, unless every object of the target is known as loaded.

    `items` are `works` as the ledger records them. An object is loaded if `known` has an entry of a complete load with
    its URI and its table.
    """
    complete = {(each.uri, each.target_oid) for each in known if each.state == "complete"}
    for work, item in zip(works, items, strict=True):
        if work.target.refusal is not None and (item.uri, item.target_oid) not in complete:
            raise work.target.refusal


def decide_objects(
    objects: Sequence[LedgerObject],
    known: Iterable[KnownObject],
    *,
    running: str | None,
    next_number: int = 0,
    emptied: frozenset[int],
    rules: LoadRules,
    landed: frozenset[int] = frozenset(),
    fresh: frozenset[int] = frozenset(),
    updating: frozenset[int] = frozenset(),
    host: str = "",
) -> list[ObjectDecision]:
    """Return a decision for each object of a load, in the order of `objects`.

    `known` is what the ledger has recorded of these objects. `running` is the id of this load if it has begun, else
    None, and `next_number` is the number of its next object. `emptied` has the oids of the targets that are empty
    although loads have stored rows in them. `host` is the name of this host, for messages.

    `landed`, `fresh` and `updating` contain values of `LedgerObject.number`: objects whose records are stored in the
    target only at the load's end, objects that are loaded even if earlier loads have loaded them, and objects that
    count as loaded only if the last load of them had the present version. Raises TargetError if the user must decide
    first: an object has changed (with --join, on any host), its rows are gone, or another unended load has it.
    """
    known = list(known)
    own = [found for found in known if found.load_id == running]
    unclaimed = {found.number: found for found in own}
    following = next_number
    decisions = []
    for item, indexes in zip(objects, find_known(objects, known), strict=True):
        found_here = [known[index] for index in indexes if known[index].target_oid == item.target_oid]
        mine = next((found for found in found_here if found.number in unclaimed and found.load_id == running), None)
        if mine is not None:
            del unclaimed[mine.number]
            if item.number not in landed:
                _refuse_loss(item, mine, emptied=emptied, rules=rules)
            is_same = _is_same(item, mine)
            if not is_same and item.version is not None:
                if rules.join:
                    raise _other_version(item, mine, host=host)
                if rules.changed == "error":
                    raise _changed_since_it_began(item, mine, is_staged=item.number in landed)
            is_changed = not is_same or item.ctime_ns != mine.ctime_ns
            decisions.append(ObjectDecision(item=item, action="resume", number=mine.number, is_changed=is_changed))
        elif item.number not in fresh and _is_loaded(
            item, found_here, running=running, emptied=emptied, rules=rules, is_updating=item.number in updating
        ):
            decisions.append(ObjectDecision(item=item, action="skip", number=-1))
        elif rules.join and running is not None:
            decisions.append(ObjectDecision(item=item, action="left", number=-1))
        else:
            decisions.append(ObjectDecision(item=item, action="new", number=following))
            following += 1
    return decisions


def find_known(objects: Sequence[LedgerObject], known: Sequence[KnownObject]) -> list[list[int]]:
    """Return, for each object, the indexes of the entries of `known` that have the object's URI."""
    by_uri: dict[str, list[int]] = {}
    for index, found in enumerate(known):
        by_uri.setdefault(found.uri, []).append(index)
    return [by_uri.get(item.uri, []) for item in objects]


def _is_loaded(
    item: LedgerObject,
    known: Sequence[KnownObject],
    *,
    running: str | None,
    emptied: frozenset[int],
    rules: LoadRules,
    is_updating: bool,
) -> bool:
    if rules.again:
        return False
    for found in known:
        if found.state == "running" and found.load_id != running:
            raise _other_load(item, found)
    same = [found for found in (known[-1:] if is_updating else known) if _is_same(item, found)]
    if same:
        return not _is_lost(item, same, emptied=emptied, rules=rules)
    if not known or rules.changed == "load":
        return False
    if rules.changed == "skip":
        return not _is_lost(item, known, emptied=emptied, rules=rules)
    raise _changed_since_it_was_loaded(item, known[-1], is_updating=is_updating)


def refuse_changed(
    items: Sequence[LedgerObject], known: Sequence[KnownObject], *, rules: LoadRules, is_updating: bool
) -> None:
    """Raise TargetError if the size of a loaded object has changed and the job does not say what to do with it.

    This is checked before any object is read. An object of the same size may still have other content: `decide_objects`
    compares the versions when the load begins.
    """
    if rules.again or rules.changed != "error":
        return
    for item, indexes in zip(items, find_known(items, known), strict=True):
        found = [known[index] for index in indexes if known[index].target_oid == item.target_oid]
        is_loaded = bool(found) and all(each.state == "complete" for each in found)
        if is_loaded and item.size_bytes is not None:
            sizes = {each.size_bytes for each in found}
            if None not in sizes and item.size_bytes not in sizes:
                raise _changed_since_it_was_loaded(item, found[-1], is_updating=is_updating)


def _changed_since_it_was_loaded(item: LedgerObject, found: KnownObject, *, is_updating: bool) -> TargetError:
    is_named, load_id = item.version is not None, found.load_id
    ways = "Use --changed load to load the new version; its rows update those of the version before."
    if not is_updating:
        ways = (
            f"Run penstock undo {load_id} and load again, use --mode replace to load all files anew, or use "
            "--mode upsert --key LIST --changed load to update rows by a key. With --changed load alone, the rows of "
            "the version before stay."
        )
    return TargetError(
        f'"{item.uri}" {"has" if is_named else "may have"} changed since it was loaded into table "{item.target}"',
        detail=f"Load {load_id} loaded another version of it."
        if is_named
        else f"Load {load_id} loaded it. Its server names no version, neither by ETag nor by Last-Modified.",
        hint=f"{ways} Use --changed skip to skip it.",
    )


def _changed_since_it_began(item: LedgerObject, found: KnownObject, *, is_staged: bool) -> TargetError:
    what = "records of it are staged" if is_staged else "rows of it are committed"
    return TargetError(
        f'"{item.uri}" has changed since load {found.load_id} began',
        detail=f"The load is not complete; {found.rows:,} {what}.",
        hint="Use --changed load to resume with the object as it is now, if the committed part is unchanged; "
        "--changed skip to keep the old version, if all of it was loaded; or restore the object.",
    )


def _other_version(item: LedgerObject, found: KnownObject, *, host: str) -> TargetError:
    return TargetError(
        f'"{item.uri}" is not the object that load {found.load_id} began with',
        detail=f"Host {host} reads another version of it.",
        hint="Every host must read the same objects: local files must be on a file system that the hosts share. If the "
        "object has changed for all of them, run the command once without --join, with --changed load.",
    )


def _is_same(item: LedgerObject, found: KnownObject) -> bool:
    return found.version is not None and found.version == item.version


def _is_lost(item: LedgerObject, same: Sequence[KnownObject], *, emptied: frozenset[int], rules: LoadRules) -> bool:
    """Return whether a loaded object must be loaded again because its rows are gone."""
    had_rows = [found for found in same if found.rows]
    is_there = item.target_oid not in emptied and any(not found.is_superseded for found in had_rows)
    if is_there or not had_rows:
        return False
    if rules.emptied == "error":
        raise _emptied(item, had_rows[-1])
    return rules.emptied == "load"


def _refuse_loss(item: LedgerObject, found: KnownObject, *, emptied: frozenset[int], rules: LoadRules) -> None:
    """Raise TargetError if rows of the object are committed and its table is empty now, unless --emptied skip."""
    if found.rows and item.target_oid in emptied and rules.emptied != "skip":
        raise TargetError(
            f'table "{item.target}" was emptied after a part of this load was committed',
            detail=f'Load {found.load_id} has committed {count_nouns(found.rows, "row")} of "{item.uri}".',
            hint="Use --emptied skip to load only what is missing; or run penstock loads forget "
            f"{found.load_id} --keep-rows, and load everything again.",
        )


def _emptied(item: LedgerObject, found: KnownObject) -> TargetError:
    return TargetError(
        f'table "{item.target}" was emptied after objects were loaded into it',
        detail=f'Load {found.load_id} loaded "{item.uri}", among others.',
        hint="Use --emptied load to load them again, --emptied skip to load only what is new, or remove the load from "
        f"the ledger with penstock loads forget {found.load_id} --keep-rows.",
    )


def _other_load(item: LedgerObject, found: KnownObject) -> TargetError:
    return TargetError(
        f'"{item.uri}" belongs to unfinished load {found.load_id}',
        detail="That load has other sources, options or settings, or the columns of its table were renamed.",
        hint=f"Finish it with penstock resume {found.load_id}, or remove its rows and run penstock loads forget "
        f"{found.load_id} --keep-rows.",
    )


# ---------------------------------------------------------------- several hosts


def name_objects(uris: Sequence[str]) -> str:
    """Return the quoted URIs, separated by commas. After the first ten, only the number of the others is given.

    >>> name_objects(["a.csv"])
    '"a.csv"'
    >>> name_objects([f"{number}.csv" for number in range(12)])[-26:]
    '"9.csv" and 2 more objects'
    """
    named = ", ".join(f'"{uri}"' for uri in uris[:_NAMED])
    more = len(uris) - _NAMED
    return named if more <= 0 else f"{named} and {more:,} more object{'s' if more > 1 else ''}"


def left_out(uris: Sequence[str], load_id: str, *, host: str) -> LeftOutError:
    """Return the error for a host if a load by several hosts is complete without some of this host's objects.

    `uris` are those objects, and `host` is the name of this host.
    """
    error = LeftOutError(
        f"{name_objects(uris)} {'is' if len(uris) == 1 else 'are'} not loaded: not part of load {load_id}",
        detail=f"Load {load_id} is complete. It has the objects that it began with, and host {host} lists more.",
        hint="Run the same command again, which loads what is left.",
    )
    error.load_id = load_id
    return error


def describe_left(uris: Sequence[str], load_id: str) -> str:
    """Return a sentence that names the objects which are not part of a load, for the detail of another error."""
    return f"Not part of load {load_id}, and not loaded: {name_objects(uris)}."


def not_seen(uris: Sequence[str], load_id: str, *, host: str) -> SourceError:
    """Return the error for a load by several hosts if no host has the load's remaining objects among its sources.

    `uris` are those objects, and `host` is the name of this host.
    """
    return SourceError(
        f"no host has {name_objects(uris)}, which load {load_id} began with",
        detail=f"Host {host} has not found it among its sources, and no other host has loaded it.",
        hint="Restore it, and run the same command again; or run the command once without --join, which leaves out"
        " what does not exist any more.",
    )


def refuse_joint(order: TargetOrder, rules: LoadRules, route: RoutePlan) -> None:
    """Raise UsageError if --join is given with an option or a source that does not allow it."""
    if rules.join:
        for what, why in _find_obstacles(order, rules, route):
            raise UsageError(f"--join cannot be used with {what}", detail=why, hint="Load it from one host.")


def _find_obstacles(order: TargetOrder, rules: LoadRules, route: RoutePlan) -> Iterator[tuple[str, str]]:
    if rules.again:
        yield "--again", "A host that comes when the load is complete would load everything once more."
    if rules.atomic:
        yield "--atomic", "The rows of several hosts are not committed in one transaction."
    if not rules.wait:
        yield "--no-wait", "A host that joins waits for the one that leads."
    if rules.max_rejects is not None:
        yield "--max-rejects", "Each host counts only what it has rejected itself."
    if route.is_import:
        yield "--via server", "The server reads the objects itself."
    for target in order.targets:
        for source in target.objects:
            if source.is_pipe:
                yield "standard input or a pipe", f"{source.uri} can be read by one process only."
        if target.landing.deletes:
            yield "--mode sync", "It would delete rows of files that only some hosts list."
        if target.job.add_columns or target.job.types == "widen":
            option = "--add-columns" if target.job.add_columns else "--types widen"
            yield option, "The table would change after other hosts have planned the load."
    if order.is_in_job_order:
        yield "foreign keys between its tables", "Rows that are referred to are loaded first, by one session."
