"""Compares the beginning of every object with the format and dialect of the first, before any row is loaded.

Also finds names of --rename, --skip and --only that no object has.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import chain, groupby
from typing import TypeAlias

from penstock import _native
from penstock.core.errors import DataError, PenstockError, TargetError, UsageError
from penstock.core.values.source import ObjectSample, SourceObject
from penstock.ledger.values import Coverage
from penstock.loading.files.streams import SourceReader
from penstock.loading.formats import find_format, format_of
from penstock.loading.formats.columns import find_absent, refuse_absent
from penstock.loading.formats.format import Depth, ReadTools
from penstock.loading.formats.probe.columnar import read_folder_values
from penstock.loading.values.objects import PlannedObject
from penstock.loading.values.plan import TargetPlan, name_fields, table_after_creation
from penstock.loading.warned import WarningLog


def refuse_other_dialects(
    works: Sequence[PlannedObject],
    sources: SourceReader,
    warnings: WarningLog,
    *,
    depth: Depth = "columns",
    targets: Sequence[TargetPlan] = (),
) -> None:
    """Read the beginning of each object, and raise an error if it does not fit the target's first object or the table.

    `works` are the objects, ordered by target. `depth` is how much is checked. "dialect": raise DataError if an object
    has another format, or seems to have another dialect and no option names the dialect; raise SourceError if it has no
    format that can be loaded. "columns": also raise TargetError or DataError if the names of its fields do not fit the
    table. "records": also raise them if one of its first records does not fit the table. Raises UsageError if --rename,
    --skip or --only of one of `targets`, the load's targets, names a column that no object has. Warns of each object,
    except the first, in which the first line names a separator.

    Pipes are not checked here but by `refuse_other_pipe`, because the writer of a pipe may wait until another pipe is
    read.
    """
    absent: dict[int, _Absent] = {}
    for index, of_target in groupby(works, key=lambda work: work.target_index):
        here = list(of_target)
        seen = [work for work in here if not _is_unseen(work)]
        with naming_strays([work.source for work in here]):
            names = _look_at(seen, sources, warnings, depth=depth) if seen else {}
        if index < len(targets):
            absent[index] = _find_absent(targets[index], here, names, sources)
    _refuse_absent(absent, targets, sources)


def refuse_other_pipe(work: PlannedObject, sources: SourceReader, warnings: WarningLog) -> None:
    """Raise DataError or SourceError if a pipe has another format or dialect than the target's first object.

    Call this just before the pipe is read. The load may have sent rows by then, but it commits rows of pipes only at
    its end.
    """
    if _is_unseen(work):
        # Check only the dialect now. The header is mapped to columns when the pipe is read.
        _look_at([work], sources, warnings, depth="dialect")


# The names in --rename, --skip and --only that no object of a target has, each with its option; then the names that it
# has.
_Absent: TypeAlias = tuple[list[tuple[str, str]], dict[str, None]]


def _refuse_absent(found: dict[int, _Absent], targets: Sequence[TargetPlan], sources: SourceReader) -> None:
    """Raise UsageError if --rename, --skip or --only names a column that no target with this option has.

    The targets of an export have the same options. Those that are not in `found` are loaded already.
    """
    for pair in dict.fromkeys(chain.from_iterable(pairs for pairs, _ in found.values())):
        users = [index for index, target in enumerate(targets) if pair in find_absent((), target.job)]
        for index in users:
            if index not in found:
                found[index] = _find_absent(targets[index], [], {}, sources)
        if all(pair in found[index][0] for index in users):
            names = dict.fromkeys(chain.from_iterable(found[index][1] for index in users))
            objects = [source for index in users for source in targets[index].objects]
            refuse_absent([pair], names, uri=objects[0].uri if len(objects) == 1 else None, is_all=True)


def _find_absent(
    target: TargetPlan, works: Sequence[PlannedObject], names: dict[str, None], sources: SourceReader
) -> _Absent:
    """Return the names in --rename, --skip and --only that no object of a target has, and the names that were found.

    `works` are the objects to be loaded, and `names` the names in the beginnings of those that can be read again. The
    other objects are loaded already. They are looked at only if a name is in none of these. Records of JSON Lines may
    have names that the beginning lacks, so the objects are then read on to the first record with the name.
    """
    job, first = target.job, format_of(target)
    names |= dict.fromkeys(job.columns or name_fields(target.header, target.edge) or ())
    if any(_is_unseen(work) and work.source != target.sample.source for work in works):
        return [], names
    given = {work.source for work in works}
    others = [source for source in target.objects if source not in given and (not source.is_pipe or source.is_spooled)]
    columns = [column.name for column in table_after_creation(target).columns] if first.is_by_name else None
    looks: Iterator[Collection[str]] = chain(
        (_find_names(sample, target) for sample in (sources.sample_all(others, job.dialect) if others else ())),
        chain.from_iterable(_read_names(work, sources) for work in works if first.is_by_name and not _is_unseen(work)),
    )
    # Of JSON Lines, --skip may also name a column of the table, which then gets no value of that name.
    while (absent := find_absent(names, job, columns=columns)) and (found := next(looks, None)) is not None:
        names |= dict.fromkeys(found)
    return absent, names


def _find_names(sample: ObjectSample, target: TargetPlan) -> Collection[str]:
    """Return the names of columns that the beginning of an object has."""
    found, uri = format_of(target), sample.source.uri
    names = name_fields(found.find_header(sample, target), target.edge) or ()
    return [*names, *(read_folder_values(uri) if found.names_folders else ())]


def _read_names(work: PlannedObject, sources: SourceReader) -> Iterator[Collection[str]]:
    """Yield the names in the records of each block of JSON Lines."""
    tools = ReadTools(sources=sources, server_major=0, rejects_torn=True)
    opened = sources.try_to(lambda: format_of(work.target).open(replace(work, coverage=Coverage()), tools))
    if opened is not None:
        with opened[0]:
            for block in opened[1]:
                found = _native.find_json_types(block.segments, wanted=0) if block.fault is None else ()
                yield [name.decode(errors="replace") for name, _ in found]


def _is_unseen(work: PlannedObject) -> bool:
    return work.source.is_pipe and not work.source.is_spooled


def _look_at(
    works: Sequence[PlannedObject], sources: SourceReader, warnings: WarningLog, *, depth: Depth
) -> dict[str, None]:
    """Check the objects of a target. Return the names of their columns, if an option names one of them."""
    target, names = works[0].target, dict[str, None]()
    first, options = format_of(target), target.job.dialect
    for sample in sources.sample_all([work.source for work in works], options):
        here = find_format(sample, options)
        here.check_content(sample, options)
        is_other = here.title(sample.own) != first.title(target.own)
        if is_other and not (first.may_be_blank and sample.format is None and not sample.head.strip()):
            named = target.dialect.format if first.is_delimited else first.title(target.own)
            raise DataError(
                "files of one load have different formats",
                detail=f"{sample.source.uri} has format {here.title(sample.own)}; the first file {named}.",
                hint=f"{target.landing.alone[0].upper()}{target.landing.alone[1:]}.",
            )
        first.check_sample(sample, target, warnings, depth=depth)
        if target.job.skip or target.job.only or options.rename:
            names |= dict.fromkeys(_find_names(sample, target))
    return names


# The endings of names of data files, without those of compression.
_ENDINGS = frozenset(("csv", "tsv", "tab", "psv", "json", "jsonl", "ndjson", "parquet", "arrow", "feather", "dat"))


@contextmanager
def naming_strays(objects: Sequence[SourceObject], *, first: str | None = None) -> Iterator[None]:
    """If the block raises an error, name in its hint the objects that may not be data, if there are any.

    `find_strays` finds them. If `first` is given, the hint is changed only if `first` is the URI of one of them.
    """
    try:
        yield
    except (DataError, TargetError, UsageError) as error:
        _name_strays(error, [each.uri for each in objects], first=first)
        raise


def _name_strays(error: PenstockError, uris: Sequence[str], *, first: str | None) -> None:
    if (strays := find_strays(uris)) and first in (None, *strays):
        left = set(strays)
        kept = [uri for uri in uris if uri not in left]
        folder, _, name = kept[0].rpartition("/")
        ending = name[name.index(".") :] if name.count(".") == 1 else f".{name.rsplit('.', 1)[1]}"
        pattern = f"{folder}/*{ending}" if folder else f"*{ending}"
        others = f": '{pattern}'" if len({uri.rpartition("/")[0] for uri in kept}) == 1 else ""
        more = f" and {len(strays) - 1} more" if len(strays) > 1 else ""
        error.hint = f"If {strays[0]}{more} is no data, name the others alone{others}. {error.hint or ''}".strip()


def find_strays(uris: Sequence[str]) -> list[str]:
    """Return the URIs whose names lack the ending of a data file, such as .csv. Return none if all lack it.

    >>> find_strays(["in/README.txt", "in/1.csv.gz", "in/notes"]), find_strays(["1.txt", "2.txt"])
    (['in/README.txt', 'in/notes'], [])
    """
    strays = [uri for uri in uris if _ENDINGS.isdisjoint(uri.rpartition("/")[2].lower().split(".")[1:])]
    return strays if len(strays) < len(uris) else []
