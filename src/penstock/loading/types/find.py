"""Plans what depends on the content of the files: the types of columns, and the columns that a table lacks.

Reads the headers of the objects if columns are to be added. If types are to be found, one pass of the Rust core over
the blocks of the load checks which types every value allows.
"""

from __future__ import annotations

import json
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Any

from penstock import _native
from penstock.core.errors import DataError, Interrupted, UsageError
from penstock.core.host.machine import cpu_count
from penstock.core.units import count_nouns, format_bytes
from penstock.core.values.job import LoadJob, LoadRules
from penstock.core.values.notice import Notice
from penstock.core.values.table import ColumnMap
from penstock.ledger.rejects import RecordForm
from penstock.loading.context import LoadTools
from penstock.loading.copy.payload import Encoder, make_form_encoder, python_codec
from penstock.loading.files.listing import is_remote
from penstock.loading.files.parallel import map_at_once
from penstock.loading.formats import find_format, format_of
from penstock.loading.formats.columns import (
    common_notations,
    named_notation,
    pick_stated,
    refuse_many_names,
    unknown_columns,
)
from penstock.loading.formats.jsonl import fold as fold_json
from penstock.loading.formats.jsonl import unite_names
from penstock.loading.formats.probe.columnar import read_folder_values
from penstock.loading.plan.dialects import refuse_other_dialects
from penstock.loading.plan.modes import (
    added_changes,
    choose_wider,
    refuse_widening,
    solve_notation,
    solve_null,
    widenable,
    with_columns,
    with_type,
)
from penstock.loading.plan.remedies import add_command
from penstock.loading.read.objects import open_blocks
from penstock.loading.types.alter import find_dependents
from penstock.loading.types.decide import choose_type, null_notices, retype, total_notices, usable_types, zero_dates
from penstock.loading.types.notations import notation_notices, unused_notices
from penstock.loading.values.objects import Block, PlannedObject, all_objects
from penstock.loading.values.plan import TargetPlan, table_after_creation, total_size
from penstock.loading.values.types import (
    BITS,
    DAY_ORDERS,
    KEPT,
    KNOWN_ORDER,
    NO_WORD,
    NOTATED,
    REJECTS,
    ColumnChange,
    ColumnFindings,
    DecidingValue,
    Position,
    TypedColumn,
    list_notations,
)
from penstock.loading.warned import WarningLog

# How many remote objects are read at once. Reading them is mostly waiting for answers, while local objects wait for
# processors.
_REMOTE_READERS = 8
# How many blocks of one object may wait for a thread. A block has at most 512 KiB.
_BLOCKS_AHEAD = 8

Findings = dict[str, ColumnFindings]

# A value that the Rust core has seen: the number of its line in the block, counted from 0, and its first bytes.
_Seen = tuple[int, bytes]


def scan_objects(works: Sequence[PlannedObject], tools: LoadTools, *, wanted: int) -> Findings:
    """Return, by the name of each column, which of the types `wanted` take all values of the column in the objects.

    The objects fill one table. If they are JSON Lines, the keys of the result are the names in their records. `wanted`
    are bits (see TYPES). Reads every object to its end, in threads. Raises SourceError, DataError for a record that
    cannot be cut, and TargetError for more names than a table may have columns.
    """
    cpus, found, stop = cpu_count(), Findings(), threading.Event()
    readers = _REMOTE_READERS if any(is_remote(work.source.location) for work in works) else cpus
    with ThreadPoolExecutor(max_workers=cpus, thread_name_prefix="penstock-types") as pool:
        try:
            for each in map_at_once(
                lambda work: tools.sources.try_to(lambda: _scan_object(work, tools, pool, wanted=wanted, stop=stop)),
                works,
                threads=readers,
            ):
                # An object that cannot be read is not loaded, so its values do not count.
                merge_findings(found, each or Findings())
        finally:
            stop.set()
    return found


def _scan_object(
    work: PlannedObject, tools: LoadTools, pool: ThreadPoolExecutor, *, wanted: int, stop: threading.Event
) -> Findings:
    stream, blocks, _, form = open_blocks(work, tools)
    found = Findings()
    scan = (_NameScan if format_of(work.target).is_by_name else _FieldScan)(work, form, wanted=wanted)
    running: deque[Future[Findings]] = deque()
    with stream:
        for block in blocks:
            if stop.is_set():
                raise Interrupted("load interrupted")
            if block.records and block.fault is None:
                running.append(pool.submit(scan.find, block))
            # Only a few blocks are in memory at a time, so memory does not grow with the file.
            if len(running) > _BLOCKS_AHEAD:
                merge_findings(found, running.popleft().result())
                scan.check(found)
    for each in running:
        merge_findings(found, each.result())
    scan.check(found)
    return found


class _Scan:
    """Turns what the Rust core finds in blocks of one object into findings."""

    def __init__(self, work: PlannedObject, form: RecordForm, *, wanted: int) -> None:
        self._uri, self._number, self._wanted = work.source.uri, work.number, wanted
        self._codec = python_codec(form.encoding)

    def check(self, found: Findings) -> None:
        """Raise TargetError if `found` has more names than a table may have columns.

        Objects that use data as names would otherwise fill the memory.
        """
        refuse_many_names(len(found), uri=self._uri)

    def _note(self, block: Block, types: _native.Types) -> ColumnFindings:
        return _read_types(types, partial(self._see, block))

    def _see(self, block: Block, seen: _Seen) -> tuple[Position, DecidingValue]:
        line = block.first_line + seen[0]
        value = seen[1].decode(self._codec, errors="replace")
        is_last = block.is_last and seen[0] >= block.lines - 1
        return (self._number, line), DecidingValue(uri=self._uri, line=line, value=value, is_last=is_last)


class _NameScan(_Scan):
    """Finds the names in blocks of JSON Lines, and the types of their values. Only those that are loaded, if named."""

    def __init__(self, work: PlannedObject, form: RecordForm, *, wanted: int) -> None:
        super().__init__(work, form, wanted=wanted)
        job = work.target.job
        named = (*job.only, *(old for old, new in job.dialect.rename.items() if new in job.only))
        self._only = {fold_json(name).encode() for name in named} if job.only else None

    def find(self, block: Block) -> Findings:
        """Return, by name, which types take all values that the block's records have under the name."""
        found = _native.find_json_types(block.segments, wanted=self._wanted, only=self._only)
        return {name.decode(errors="replace"): self._note(block, types) for name, types in found}


class _FieldScan(_Scan):
    """Finds the types in blocks of delimited text."""

    def __init__(self, work: PlannedObject, form: RecordForm, *, wanted: int) -> None:
        super().__init__(work, form, wanted=wanted)
        mapped = form.column_map
        self._columns = mapped.columns[: len(mapped.columns) - len(mapped.constants)]
        given = dict(zip(self._columns, mapped.notations, strict=False))
        options = work.target.job.dialect
        named = {name: named_notation(name, options) for name in _find_open(work.target) if name in self._columns}
        given |= named
        # The types of these columns are not known, so a notation for all columns applies if their values fit.
        self._open = [name for name, notation in named.items() if notation is None]
        self._encoder = self._make_encoder(form, given)
        common = common_notations(options) if self._open else ()
        self._plain = {each: self._make_encoder(form, given | dict.fromkeys(self._open, each)) for each in common}

    def _make_encoder(self, form: RecordForm, given: Mapping[str, str | None]) -> Encoder:
        notations = tuple(given.get(name) for name in self._columns)
        mapped = replace(form.column_map, columns=self._columns, constants=(), notations=notations)
        return make_form_encoder(replace(form, column_map=mapped), checks_width=True)

    def find(self, block: Block) -> Findings:
        """Return, by the name of each column, which types take all its values in the block."""
        found = self._find(block, self._encoder)
        for notation, encoder in self._plain.items():
            plain = self._find(block, encoder)
            for name in self._open if found else ():
                found[name].plain[notation] = plain[name]
        return found

    def _find(self, block: Block, encoder: Encoder) -> Findings:
        assert isinstance(encoder.rewriter, _native.Rewriter)
        forced = [name in encoder.spec.force_null for name in self._columns]
        columns = encoder.rewriter.find_types(block.segments, block.line_end, wanted=self._wanted, forced=forced)
        return {name: self._note(block, types) for name, types in zip(self._columns, columns, strict=bool(columns))}


def _find_open(target: TargetPlan) -> list[str]:
    """Return the columns of a table that get the types of their values."""
    table = table_after_creation(target)
    if target.facts is None or target.takes_types:
        return [column.name for column in table.columns if column.name not in target.job.set]
    return [change.column for change in target.changes if change.was is None]


def scan_folders(works: Sequence[PlannedObject], *, wanted: int) -> Findings:
    """Return what `scan_objects` returns, for columns that get values from names of folders. No object is read."""
    stated = []
    for work in works:
        mapped, table = work.target.column_map, table_after_creation(work.target)
        fed = mapped.columns[: len(mapped.columns) - len(mapped.constants)]
        stated.append(pick_stated(read_folder_values(work.source.uri), fed=fed, job=work.target.job, table=table))
    # Write the values as JSON Lines, in which a text has the type that the same text has in a delimited file.
    lines = "".join(f"{json.dumps(values)}\n" for values in stated).encode()

    def see(seen: _Seen) -> tuple[Position, DecidingValue]:
        work = works[seen[0]]
        return (work.number, 0), DecidingValue(uri=work.source.uri, line=None, value=seen[1].decode(errors="replace"))

    types = _native.find_json_types([(lines, 0, len(lines))], wanted=wanted)
    return {name.decode(): _read_types(each, see) for name, each in types}


def _read_types(types: _native.Types, see: Callable[[_Seen], tuple[Position, DecidingValue]]) -> ColumnFindings:
    """Return the Rust core's findings about a column. `see` returns the position and the text of a value."""
    fits, first, lost = types
    each = ColumnFindings(fits=fits)
    if first is not None:
        each.first = see(first)
    for bits, seen in lost:
        position = see(seen)
        each.lost.update((bit, position) for bit in BITS if bits & bit)
    return each


def merge_findings(found: Findings, other: Findings) -> Findings:
    """Add the findings in `other` to those in `found`, which is changed, and return `found`."""
    for name, each in other.items():
        if name in found:
            found[name].add(each)
        else:
            found[name] = each
    return found


_Targets = list["TargetPlan"]


def find_columns(
    planned: Sequence[TargetPlan], job: LoadJob, tools: LoadTools, *, server_encoding: str, noted: Sequence[Notice]
) -> tuple[list[TargetPlan], list[Notice]]:
    """Return the targets with the types that were found for their columns, and warnings about these types.

    The types are those of tables to be created, and of columns to be added or widened. With --types the objects are
    read to their end. `server_encoding` is the database's. `noted` are the warnings of the plan so far: an error shows
    a command that has their options, too. Raises PenstockError.
    """
    usable = usable_types(server_encoding=server_encoding) | NOTATED
    usable |= REJECTS if job.rules.on_error == "reject" else 0
    targets, notices = list(planned), dict["Notice", None]()
    find_users = partial(_find_dependents, tools, job.rules)

    def add_options(error: DataError, others: Iterable[Mapping[str, Any]]) -> None:
        add_command(error, planned, job, [*(notice.options for notice in noted), *others])

    from_files = (target for target in targets if target.job.types != "text" or target.job.add_columns)
    tables = dict.fromkeys(target.table for target in from_files)
    for table in tables:
        numbers = [number for number, target in enumerate(targets) if target.table == table]
        group = _add_columns([targets[number] for number in numbers], tools)
        works = [work for work in all_objects(planned) if work.target_index in numbers]
        found = _look(group, works, tools, usable=usable)
        if found is not None and any(format_of(target).is_by_name for target in group):
            group, found = _name_columns(group, found)
        if found is not None:
            # The columns are altered once for the table, whichever of its targets asks for it.
            widens = any(target.job.types == "widen" for target in group)
            is_typed = any(format_of(target).is_typed for target in group)
            with_types = partial(_with_types, widens=widens, is_typed=is_typed)
            group = [with_types(target, found, find_users, add_options) for target in group]
        # How a value is sent depends on the type of its column: of JSON Lines, and if a notation is for all columns.
        group = [replace(each, column_map=_map_again(each)) for each in group]
        if found is not None:
            notices |= dict.fromkeys(notation_notices(group[0]))
            notices |= dict.fromkeys(null_notices(group[0]))
            notices |= dict.fromkeys(total_notices(group[0]))
        notices |= dict.fromkeys(unused_notices(group[0]))
        for number, target in zip(numbers, group, strict=True):
            targets[number] = target
    return targets, list(notices)


def _find_dependents(tools: LoadTools, rules: LoadRules, oid: int, column: str) -> list[str]:
    """Return what uses a column.

    After a transient error, only this query is retried, and the files are not read again.
    """

    def find() -> list[str]:
        with tools.connect.borrow() as connection:
            return find_dependents(connection, oid=oid, column=column)

    return tools.patiently(find, retry_for_s=rules.retry_for)


# ---------------------------------------------------------------- columns that the table lacks


def _add_columns(group: _Targets, tools: LoadTools) -> _Targets:
    """Return the targets of one table. The table is extended by the columns that it lacks and that the objects have."""
    first, headers = group[0], [target.header for target in group]
    for number, target in enumerate(group):
        if not target.job.add_columns:
            continue
        missing = {change.column: change.type_name for change in target.changes}
        # A pipe can be read again only if it was copied to a temporary file.
        readable = [source for source in target.unloaded if not source.is_pipe or source.is_spooled]
        for sample in tools.sources.sample_all(readable, target.job.dialect):
            here, table = find_format(sample, target.job.dialect), table_after_creation(first)
            header = here.find_header(sample, target)
            is_by_name = format_of(target).is_by_name
            unknown = unknown_columns(header, target.job, table, target.edge, is_by_name=is_by_name)
            types = here.type_columns(sample.own, unknown, uri=sample.source.uri)
            missing |= {name: type_name for name, type_name in types.items() if name not in missing}
            if format_of(target).is_by_name:
                headers[number] = unite_names(headers[number] or (), header or (), table_columns=_names(first))
        known = {column.name for column in table_after_creation(first).columns}
        first = _extend(first, {name: each for name, each in missing.items() if name not in known})
    return [replace(_follow(target, first), header=header) for target, header in zip(group, headers, strict=True)]


def _names(target: TargetPlan) -> list[str]:
    return [column.name for column in table_after_creation(target).columns]


def _follow(target: TargetPlan, first: TargetPlan) -> TargetPlan:
    """Return `target` with the table's columns as in `first`, a target of the same table."""
    return replace(
        target,
        facts=first.facts,
        changes=first.changes,
        create_columns=first.create_columns,
        create_types=first.create_types,
    )


def _extend(target: TargetPlan, added: Mapping[str, str]) -> TargetPlan:
    """Return the target with columns of these names and types added to its table."""
    if not added:
        return target
    if target.facts is None:
        types = target.create_types
        return replace(
            target,
            create_columns=(*(target.create_columns or ()), *added),
            create_types=None if types is None else (*types, *added.values()),
        )
    facts = with_columns(target.facts, added)
    return replace(target, facts=facts, changes=(*target.changes, *added_changes(facts, added)))


# ---------------------------------------------------------------- types


def _map_again(target: TargetPlan) -> ColumnMap:
    options = target.job.dialect
    is_common = "*" in (*options.decimal_comma, *options.thousands, *options.date_order)
    is_open = format_of(target).is_by_name or is_common
    if target.refusal is not None or not is_open:
        return target.column_map
    return format_of(target).map_object(target.header, target, uri=target.objects[0].uri)


def _name_columns(group: _Targets, found: Findings) -> tuple[_Targets, Findings]:
    """Return the targets of one table with all names of its JSON Lines, and the findings by column.

    Raises UsageError if only some of the targets have JSON Lines.
    """
    first = group[0]
    if not all(format_of(target).is_by_name for target in group):
        raise UsageError(
            f"--types {first.job.types} cannot be used with JSON Lines and other files for one table",
            hint="Load them one after the other.",
        )
    table, last = table_after_creation(first), (sys.maxsize, 0)
    in_order = sorted(found, key=lambda name: last if (seen := found[name].first) is None else seen[0])
    header = unite_names(first.header or (), in_order, table_columns=_names(first))
    if first.job.columns is None and (first.facts is None or first.job.add_columns):
        first = _extend(first, dict.fromkeys(unknown_columns(header, first.job, table, None, is_by_name=True), "text"))
    group = [replace(_follow(target, first), header=header) for target in group]
    mapped = _map_again(group[0])
    exact = {name: index for name, index in mapped.names or () if index is not None}
    folded = {fold_json(name): index for name, index in reversed(exact.items())}
    by_column = dict[str, "ColumnFindings"]()
    for name in in_order:
        index = exact.get(name, folded.get(fold_json(name)))
        if index is not None and (column := mapped.columns[index]) in by_column:
            by_column[column].add(found[name])
        elif index is not None:
            by_column[column] = found[name]
    return group, by_column


def _look(group: _Targets, works: Sequence[PlannedObject], tools: LoadTools, *, usable: int) -> Findings | None:
    """Return which types the values of a table's objects allow, None if no column's type depends on them."""
    wanted = 0
    for target in group:
        if target.job.types == "text":
            continue
        # Each record that names its fields may name a column that the table lacks, or that a merge updates.
        may_extend = format_of(target).is_by_name and (target.job.add_columns or target.landing.is_keyed)
        if target.facts is None or target.takes_types or target.changes or may_extend:
            wanted |= usable
        if target.facts is not None and target.job.types == "widen" and widenable(target.facts):
            wanted |= sum(KEPT.values()) | NOTATED | usable & REJECTS
            order = tools.connect.date_order
            wanted |= KNOWN_ORDER if order.is_chosen else 0
            wanted |= sum(bits for name, bits in DAY_ORDERS.items() if name in order.date_style)
    by_index = dict(zip(dict.fromkeys(work.target_index for work in works), group, strict=True))
    left = [
        replace(work, target=by_index[work.target_index])
        for work in works
        if work.source in by_index[work.target_index].unloaded
        # A pipe can be read only once. Its beginning decides.
        and not (work.source.is_pipe and not work.source.is_spooled)
    ]
    if not wanted or not left:
        return None
    found = scan_folders([work for work in left if format_of(work.target).is_typed], wanted=wanted)
    left = [work for work in left if not format_of(work.target).is_typed]
    if not left:
        return found
    size = total_size(work.source for work in left)
    length = "size unknown" if size is None else format_bytes(size)
    count = count_nouns(len(left), "object")
    tools.notice(f'looking at every value for the types of table "{group[0].table}": {count}, {length}')
    # Ignore the warnings of this check, because the load checks the objects again.
    refuse_other_dialects(left, tools.sources, WarningLog())
    return merge_findings(found, scan_objects(left, tools, wanted=wanted | NO_WORD))


def _with_types(
    target: TargetPlan,
    found: Findings,
    find_users: Callable[[int, str], Sequence[str]],
    add_options: Callable[[DataError, Iterable[Mapping[str, Any]]], None],
    *,
    # Whether a column of the table is widened, and whether files of a target have types, whichever target of it.
    widens: bool,
    is_typed: bool,
) -> TargetPlan:
    if target.facts is None:
        columns = target.create_columns or ()
        # If the files have types, choose types only for columns whose values were examined: the columns that names of
        # folders fill.
        is_typed = format_of(target).is_typed
        open_types = [name for name in columns if name not in target.job.set and (not is_typed or name in found)]
        typed = tuple(choose_type(name, found.get(name)) for name in open_types)
        types = dict(zip(columns, target.create_types or ["text"] * len(columns), strict=True))
        types |= {column.name: column.type_name for column in typed}
        return replace(target, typed=typed, create_types=tuple(types.values()))
    facts, changes = target.facts, list(target.changes)
    added: list[TypedColumn] = []
    refused: list[DataError] = []
    widened: list[ColumnChange] = []
    for number, change in enumerate(changes):
        if is_typed and change.column not in found:
            # The file's type stays: its values were not examined.
            continue
        column = choose_type(change.column, found.get(change.column))
        changes[number] = replace(change, type_name=column.type_name, decided_by=column.decided_by)
        facts = with_type(facts, changes[number])
        added.append(column)
    if widens:
        for name, type_name in widenable(target.facts).items():
            wider = choose_wider(facts, name, type_name, found.get(name))
            if wider is not None:
                dependents, is_delimited = find_users(facts.oid, name), format_of(target).is_delimited
                try:
                    refuse_widening(facts, wider, dependents, target.dialect, is_delimited=is_delimited)
                except DataError as error:
                    refused.append(error)
                facts = with_type(facts, wider)
                widened.append(wider)
    changes += widened
    if refused:
        # The command has the options for the other columns, too.
        others = [error.options for error in refused[1:] if error.options]
        if format_of(target).is_delimited:
            others += [solve_notation(each.column, list_notations(found[each.column].fits)) for each in widened]
            others += [solve_null(seen.value, [each.column], target.dialect) for each, seen in zero_dates(widened)]
        add_options(refused[0], others)
        raise refused[0]
    retyped: tuple[ColumnChange, ...] = ()
    if target.takes_types:
        known = [each for each in facts.columns if each.name in found and each.name not in target.job.set]
        added = [choose_type(column.name, found[column.name]) for column in known]
        retyped = retype(facts, [each for each in added if each.name not in {change.column for change in changes}])
        for change in retyped:
            facts = with_type(facts, change)
    return replace(target, facts=facts, changes=tuple(changes), typed=tuple(added), retyped=retyped)
