"""The functions that the package exports. Each does a whole task in one call, with the classes of penstock.api."""

from __future__ import annotations

import glob
import io
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import IO, TYPE_CHECKING, Any, Protocol, Unpack

from penstock.api.connect import connect_to
from penstock.api.options import ACCESS_KEYWORDS, LOAD_KEYWORDS, RESUME_KEYWORDS, reword_notice, takes
from penstock.core.closing import log_warning
from penstock.core.errors import DataError, PenstockError, ServerError, SourceError, UsageError
from penstock.core.units import count_nouns
from penstock.core.values.dialect import DialectOptions
from penstock.core.values.job import TARGET_KINDS, Access, Housekeeping, LoadRules, Request
from penstock.core.values.names import parse_table_name
from penstock.core.values.options import option_fields, pick
from penstock.loading.files.encodings import normalize_encoding
from penstock.loading.files.local import SpoolFolder
from penstock.loading.jobs import make_request, make_target, no_table, read_job_file
from penstock.loading.loader import Loader

if TYPE_CHECKING:
    from penstock.api.keywords import AccessKeywords, LoadKeywords, ResumeKeywords
    from penstock.api.ledger_view import LedgerView
    from penstock.core.connect.connection import ConnectionFactory
    from penstock.core.values.table import TableName
    from penstock.ledger.rejects import RejectCause, RetryOutcome
    from penstock.ledger.values import LoadRecord
    from penstock.loading.files.streams import SourceReader
    from penstock.loading.values.outcome import LoadOutcome, LoadProgress
    from penstock.loading.values.plan import LoadPlan
    from penstock.preflight.doctor import DoctorResult
    from penstock.proof.values import VerifyOutcome
    from penstock.removal.decide import UndoOutcome
    from penstock.restore.repair import RepairOutcome
    from penstock.temp.usage.values import UsageReport

    class ArrowTable(Protocol):
        """A table in memory with the Arrow C stream interface, such as one of pyarrow, polars, DuckDB or pandas."""

        def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
            """Return a capsule of the stream."""

    Source = str | os.PathLike[str] | IO[bytes] | IO[str] | ArrowTable


# The size of one read from a file object: bytes, or characters if the file object returns text.
_PIECE = 1 << 20


@takes(LOAD_KEYWORDS)
def load(
    source: Source | Sequence[Source],
    into: str | TableName | None = None,
    *,
    to: str | None = None,
    dialect: DialectOptions | None = None,
    on_progress: Callable[[LoadProgress], None] | None = None,
    **options: Unpack[LoadKeywords],
) -> LoadOutcome:
    """Load files into a table and return what was done. Objects that are loaded already are skipped.

    `source` is a path, wildcard or URL, a file object, a table in memory with the Arrow C stream interface (pyarrow,
    polars, DuckDB, pandas), or a list of those. File objects and tables are first copied to a temporary file, text as
    UTF-8. Each call loads them again, and no other process can resume such a load.
    `into` is "table" or "schema.table" as SQL spells it. If it is not given, `source` is a job file, whose name ends
    with .toml, and `options` override its keys for the whole load.
    `to` is a connection string of libpq. By default the PG* variables name the server. If they are not set, it is the
    embedded server.
    Warnings are logged, and returned in the outcome. Raises PenstockError, which says which rows stay committed and how
    to resume.
    """
    sources = list(source) if isinstance(source, (list, tuple)) else [source]
    if options.get("join") and any(hasattr(each, "read") or hasattr(each, "__arrow_c_stream__") for each in sources):
        raise UsageError("join cannot be used with file objects and tables", detail="No other host can read them.")
    copies: dict[str, str] = {}
    with ExitStack() as stack, _naming_copies(copies, options):
        joins_levels = (options.get("names") or getattr(dialect, "names", None)) == "snake"
        encoding = options.get("encoding") or getattr(dialect, "encoding", None)
        paths = [_path_of(each, stack, copies, joins_levels=joins_levels, encoding=encoding) for each in sources]
        request = _read_request(paths, into, {**options, "dialect": dialect, "to": to})
        loader = stack.enter_context(Loader(connect_to(**asdict(request.access)), request.housekeeping))
        return _run(loader, loader.plan(request.job), on_progress, copies)


def _run(
    loader: Loader,
    plan: LoadPlan,
    on_progress: Callable[[LoadProgress], None] | None,
    copies: Mapping[str, str] = MappingProxyType({}),
) -> LoadOutcome:
    """Log the warnings of a plan, run the plan, and write the reject file if one is requested."""
    for notice in plan.notices:
        log_warning(reword_notice(notice, copies))
    outcome = loader.run(
        plan, on_progress=on_progress, on_warning=lambda notice: log_warning(reword_notice(notice, copies))
    )
    try:
        loader.write_rejects(outcome)
    except PenstockError as error:
        error.load_id = outcome.load_id
        error.detail = "\n".join(filter(None, (error.detail, f"The load itself succeeded: {outcome.headline}.")))
        raise
    return replace(outcome, warnings=tuple(reword_notice(notice, copies) for notice in outcome.warnings))


def _read_request(
    paths: Sequence[str],
    into: str | TableName | None,
    options: Mapping[str, Any],
) -> Request:
    """Return the request that a job file contains, or a request to load the given sources. Raises UsageError."""
    if into is None and [path.lower().endswith(".toml") for path in paths] == [True]:
        given = {name: value for name, value in options.items() if value is not None}
        of_targets = {"dialect", *(name for kind in TARGET_KINDS for name in option_fields(kind))}
        if names := [name for name in given if name in of_targets]:
            raise UsageError(
                f"{names[0]} cannot be used with a job file",
                detail=f"{paths[0]} describes its own targets.",
                hint="Write it into the [[target]] that it is for; what is not about one target may be given here.",
            )
        return read_job_file(Path(paths[0]), given)
    if into is None:
        raise no_table()
    return make_request(options, [make_target({**options, "into": into}, sources=paths)])


@contextmanager
def _naming_copies(copies: Mapping[str, str], options: Mapping[str, Any]) -> Iterator[None]:
    """In errors that the block raises, name the copied source, such as a DataFrame, instead of the temporary file.

    `options` are those of the load. An exception of `on_progress` has the load's error as a note.
    """
    try:
        yield
    except PenstockError as error:
        if not copies:
            raise
        error.message = _name_copies(error.message, copies)
        error.detail = None if error.detail is None else _name_copies(error.detail, copies)
        is_staged = _STAGED in (error.detail or "")
        error.hint = None if error.hint is None else _say_again(_name_copies(error.hint, copies), options, is_staged)
        if error.location is not None and error.location.file in copies:
            error.location = replace(error.location, file=copies[error.location.file], part=None)
        # "from None" hides the causes of the error, because they name the temporary file.
        raise error from None
    except BaseException as error:
        if copies and getattr(error, "__notes__", None):
            notes = [_name_copies(note, copies) for note in error.__notes__]
            error.__notes__ = [_say_again(note, options, _STAGED in note) for note in notes]
        raise


def _name_copies(text: str, copies: Mapping[str, str]) -> str:
    for path, name in copies.items():
        spelled = re.compile(rf"{re.escape(path)}(?: record batch \d+,(?= row))?")
        text = spelled.sub(name.replace("\\", r"\\"), text)
    return text


# How a hint begins that says how to resume a load, with the load's id.
_RESUMING = re.compile(r"(?:Resume with|Once it is repaired)\b.*?penstock resume ([0-9a-f-]+).*", re.DOTALL)


# What an error says of a load whose records are in staging tables.
_STAGED = "staged in load "


def _say_again(text: str, options: Mapping[str, Any], is_staged: bool) -> str:
    """Return a text that says how to load a source in memory again, where it says how to resume the load."""
    if (found := _RESUMING.search(text)) is None:
        return text
    load_id = found[1]
    rejects = options.get("on_error") == "reject"
    discard = f"run penstock rejects {load_id} --discard, and then " if rejects else "run "
    forget = f"{discard}penstock loads forget {load_id} --keep-rows"
    if is_staged or options.get("mode", "append") not in ("append", "insert-new") or options.get("transform"):
        # No row of it is in a table, or the next load removes it.
        way = forget
    elif rejects:
        # Its rows were stored under savepoints.
        way = f"undo cannot find its rows, so remove them with a statement of your own, {forget}"
    else:
        way = f"run penstock undo {load_id}"
    own = text[: found.start()]
    return f"{own}The load cannot be resumed, because its source was in memory: {way}, and load it again."


def _path_of(source: Any, stack: ExitStack, copies: dict[str, str], *, joins_levels: bool, encoding: str | None) -> str:
    """Return the path or URL of a source. A file object or a table is copied to a temporary file first.

    If `joins_levels` is true, a frame may have columns with names in several levels. `encoding` is the option's.

    The path of a temporary file is added to `copies`, with the name that error messages show instead of the path. The
    file is deleted when the stack is closed.
    """
    if hasattr(source, "__arrow_c_stream__"):
        table = str(_copy_table(source, stack, joins_levels=joins_levels))
        copies[table] = type(source).__name__
        return glob.escape(table)
    if not hasattr(source, "read"):
        return str(os.fspath(source))
    folder = _make_folder(source, stack)
    # The name is a number if the file was opened by its descriptor.
    path = folder / (Path(str(getattr(source, "name", ""))).name or "data")
    copies[str(path)] = name = path.name if getattr(source, "name", None) else type(source).__name__
    try:
        copy = stack.enter_context(path.open("wb", buffering=0))
    except OSError as error:
        raise _no_copy(name, error) from error
    with copy:
        while piece := _read(source):
            left = memoryview(_encode(piece, encoding, name=name) if isinstance(piece, str) else piece)
            try:
                while left:
                    left = left[copy.write(left) :]
            except OSError as error:
                raise _no_copy(name, error) from error
    _refuse_cut_response(source, name=name)
    return glob.escape(str(path))


def _refuse_cut_response(source: object, *, name: str) -> None:
    """Raise SourceError if a response of urllib ended early: its `read` returns no bytes then, and raises nothing."""
    # Who has a response has imported its module.
    client, response = sys.modules.get("http.client"), source
    while isinstance(response, (io.TextIOWrapper, io.BufferedReader)):
        response = response.buffer if isinstance(response, io.TextIOWrapper) else response.raw
    if client is not None and isinstance(response, client.HTTPResponse) and response.length:
        raise SourceError(
            f'"{name}" ended {count_nouns(response.length, "byte")} before its end',
            hint="The connection was lost. Request it again.",
        )


def _make_folder(source: object, stack: ExitStack) -> Path:
    """Return a temporary folder, which is removed when the stack is closed, or by a later load if this process dies."""
    try:
        folder = SpoolFolder()
    except OSError as error:
        raise _no_copy(type(source).__name__, error) from error
    stack.callback(folder.close)
    return Path(folder.path)


def _no_copy(name: str, error: OSError) -> SourceError:
    return SourceError(
        f'could not copy "{name}" to a temporary file: {error.strerror}',
        hint="Set TMPDIR to a folder with enough space.",
    )


def _encode(text: str, encoding: str | None, *, name: str) -> bytes:
    """Return text in UTF-8, in which it is loaded. Raises UsageError if the option names another encoding."""
    if encoding is not None and normalize_encoding(encoding) != "UTF8":
        raise UsageError(
            "encoding cannot be used with a text file object",
            detail=f'"{name}" is decoded already.',
            hint="Open it with mode 'rb', or leave encoding out.",
        )
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        shown = ascii(text[error.start])
        raise DataError(
            f'text file object "{name}" has the surrogate {shown}, which UTF-8 cannot hold',
            hint="Open it with mode 'rb', and give its encoding.",
        ) from None


def _copy_table(source: Any, stack: ExitStack, *, joins_levels: bool) -> Path:
    from penstock.loading.files.columnar.spool import write_stream  # noqa: PLC0415 (only tables in memory need it)

    path = _make_folder(source, stack) / "table.arrow"
    write_stream(source, path, joins_levels=joins_levels)
    return path


def _read(source: Any) -> bytes | str:
    """Return the next piece of a file object, empty at its end."""
    piece: bytes | str | None = source.read(_PIECE)
    # A non-blocking file returns None if it has no data yet. A text file object that reads from a non-blocking file
    # returns "" in this case.
    if piece is None or (piece == "" and hasattr(source, "buffer") and source.buffer.read(1) != b""):
        raise SourceError(
            f"file object {source!r} has no data at the moment",
            detail="read() returned None, as it does for a file in non-blocking mode: its end was not met.",
            hint="Use a file in blocking mode: os.set_blocking(file.fileno(), True).",
        )
    return piece


@takes(LOAD_KEYWORDS)
def doctor(
    into: str | TableName | None = None,
    source: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] = (),
    *,
    to: str | None = None,
    **options: Unpack[LoadKeywords],
) -> DoctorResult:
    """Return the facts of a server, the role's rights there, and whether a load would work. Changes nothing.

    If `source` is given, a load into table `into` is planned too, with the load's options. Raises ServerError.
    """
    return examine(into, source, to=to, options=options)


def examine(
    into: str | TableName | None,
    source: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    *,
    to: str | None,
    options: Mapping[str, Any],
    sources: Callable[..., SourceReader] | None = None,
) -> DoctorResult:
    """Return what `doctor` returns.

    `options` are the keywords of a load, and `sources` makes the reader of the sources. Raises UsageError, LabError,
    ServerError.
    """
    from penstock.preflight.doctor import diagnose, explain_refused_token  # noqa: PLC0415 (60 ms and more)

    named = [source] if isinstance(source, (str, os.PathLike)) else source
    now = datetime.now(UTC)
    connect = connect_to(to, allows_standby=True, **pick(Access, options))
    is_iam = bool(options.get("iam_auth"))
    paths = [str(os.fspath(each)) for each in named]
    target = make_target({**options, "into": into}, sources=paths) if paths else None
    request = None if target is None else make_request({**options, "to": to}, [target])
    # A partition that the load makes does not exist, so its parent is looked at.
    looked_at = options.get("partition_of") or into
    table = parse_table_name(looked_at) if isinstance(looked_at, str) else looked_at
    try:
        return diagnose(
            connect,
            now=now,
            table=table,
            request=request,
            ledger_schema=options.get("ledger_schema", "penstock"),
            creates=bool(options.get("create")),
            publishes=bool(options.get("publish_ledger")),
            is_repeating=LoadRules(**pick(LoadRules, options)).is_repeating,
            uses_iam=is_iam,
            sources=sources,
        )
    except ServerError as error:
        raise (explain_refused_token(error, to=to, now=now) if is_iam else error) from error.__cause__
    finally:
        connect.close()


@takes(ACCESS_KEYWORDS)
def loads(
    *,
    to: str | None = None,
    since: datetime | None = None,
    into: str | None = None,
    limit: int | None = None,
    **options: Unpack[AccessKeywords],
) -> list[LoadRecord]:
    """Return the loads that the ledger of a database records, the newest last.

    Only loads that began at `since` or later, or into table `into`, are returned if these are given; with `limit`, only
    so many of the newest. Without a time zone, `since` is in that of this machine. Raises ServerError, TargetError.
    """
    with _open_ledger(to, options) as view:
        return view.loads(since=since, into=into, limit=limit)


@takes(RESUME_KEYWORDS)
def resume(
    load_id: str,
    *,
    to: str | None = None,
    on_progress: Callable[[LoadProgress], None] | None = None,
    **options: Unpack[ResumeKeywords],
) -> LoadOutcome:
    """Resume a load that was cut short, on any host that reads the same sources, and return what was done.

    `load_id` may be abbreviated to its first characters; "latest" is the newest load that was cut short. Sources,
    tables and all other options are those of the call or command that began the load. Raises PenstockError, which says
    which rows stay committed and how to resume.
    """
    with _open_ledger(to, options) as view:
        whole_id, job = view.find_resumed(load_id, options)
    housekeeping = Housekeeping(**pick(Housekeeping, options))
    with Loader(_connect(to, options), housekeeping, resumes=whole_id) as loader:
        return _run(loader, loader.plan(job), on_progress)


@takes(ACCESS_KEYWORDS)
def rejects(
    load_id: str,
    file: str | os.PathLike[str] | None = None,
    *,
    to: str | None = None,
    **options: Unpack[AccessKeywords],
) -> list[RejectCause]:
    """Return the causes for which records of a load were rejected, the most frequent first.

    The role must have run the load. `load_id` may be abbreviated to its first characters; "latest" is the newest load
    with rejected records. With `file`, also write the rejected records to this file, which is replaced if it exists. If
    their headers, dialects or tables differ, several files are written, such as bad.csv and bad-2.csv. Raises
    SourceError, ServerError, TargetError.
    """
    with _open_ledger(to, options) as view:
        whole_id = view.find_rejecting(load_id)
        if file is not None:
            view.write_rejects(whole_id, Path(file))
        return view.rejects(whole_id)


@takes(ACCESS_KEYWORDS)
def retry(
    load_id: str,
    file: str | os.PathLike[str] | None = None,
    *,
    to: str | None = None,
    into: str | TableName | None = None,
    **options: Unpack[AccessKeywords],
) -> RetryOutcome:
    """Load the rejected records of a load again, or the records of a corrected reject file instead.

    Return what was done. `load_id` may be abbreviated to its first characters; "latest" is the newest load with
    rejected records. `file` is the corrected file. `into` is the table of its records, which is needed only if several
    reject files of the load have the same header. Raises PenstockError; in this case nothing was changed.
    """
    table = parse_table_name(into) if isinstance(into, str) else into
    with _open_ledger(to, options) as view:
        outcome = view.retry(view.find_rejecting(load_id), None if file is None else Path(file), into=table)
    for notice in outcome.warnings:
        log_warning(notice)
    return outcome


@takes(ACCESS_KEYWORDS)
def verify(
    load_id: str,
    *,
    to: str | None = None,
    values: bool = False,
    on_progress: Callable[[LoadProgress], None] | None = None,
    **options: Unpack[AccessKeywords],
) -> VerifyOutcome:
    """Verify that a complete load has stored each record of its files once, and return what was found.

    `load_id` may be abbreviated to its first characters; "latest" is the role's newest load. Without `values`, only
    counts are compared, and the outcome `agrees` if no count is wrong. With `values`, the files are read again, and the
    server compares every value; then the outcome can be `is_verified`. What is wrong is in its `problems`. Changes
    nothing. Raises TargetError, ServerError, SourceError.
    """
    with _open_ledger(to, options, allows_standby=not values) as view:
        return view.verify(view.find_newest(load_id), values=values, on_progress=on_progress)


@takes(ACCESS_KEYWORDS)
def undo(
    load_id: str, *, to: str | None = None, partial: bool = False, plan: bool = False, **options: Unpack[AccessKeywords]
) -> UndoOutcome:
    """Remove exactly the rows that a load has stored, and the load from the ledger, in one transaction.

    Return how many rows of each table were removed. `load_id` may be abbreviated to its first characters; "latest" is
    the role's newest load. If some of its rows were changed since they were stored, nothing is removed; with `partial`,
    the unchanged rows are removed. With `plan`, rows are only counted. Raises TargetError, DataError, ServerError.
    """
    with _open_ledger(to, options, allows_standby=plan) as view:
        outcome = view.undo(view.find_newest(load_id, removable=not plan), is_partial=partial, only_planned=plan)
    warnings = tuple(reword_notice(notice, {}) for notice in outcome.warnings)
    for notice in warnings:
        log_warning(notice)
    return replace(outcome, warnings=warnings)


@takes(ACCESS_KEYWORDS)
def repair(*, to: str | None = None, **options: Unpack[AccessKeywords]) -> RepairOutcome:
    """Restore the changes that ended loads have left in a database and on its server, and return what was restored.

    The outcome's `errors` are the errors of what could not be restored. Raises ServerError, TargetError.
    """
    from penstock.restore.repair import Repairer  # noqa: PLC0415 (60 ms and more)

    with Repairer(_connect(to, options), ledger_schema=options.get("ledger_schema", "penstock")) as repairer:
        return repairer.run()


@takes(ACCESS_KEYWORDS)
def temp_usage(
    *, to: str | None = None, interval_s: float = 60.0, top: int = 10, **options: Unpack[AccessKeywords]
) -> UsageReport:
    """Return the sorts, hashes and temporary tables that a server writes to disk within an interval.

    The report has the `top` statements by temporary bytes. If the interval is 0, statements are counted since their
    statistics were reset. Statements need pg_stat_statements. Statements of other roles, and files on disk, need
    pg_monitor. Raises ServerError.
    """
    from penstock.temp.usage.usage import temp_usage as read_temp_usage  # noqa: PLC0415 (few callers need it)
    from penstock.watch.watching import find_rds_host  # noqa: PLC0415 (with the line above)

    with closing(connect_to(to, allows_standby=True, **pick(Access, options))) as connect:
        return read_temp_usage(connect, interval_s=interval_s, top=top, host=find_rds_host(to))


def _connect(to: str | None, options: Mapping[str, Any], *, allows_standby: bool = False) -> ConnectionFactory:
    return connect_to(to, allows_standby=allows_standby, **pick(Access, options))


def _open_ledger(to: str | None, options: Mapping[str, Any], *, allows_standby: bool = False) -> LedgerView:
    from penstock.api.ledger_view import LedgerView  # noqa: PLC0415 (60 ms and more)

    connect = _connect(to, options, allows_standby=allows_standby)
    return LedgerView(connect, ledger_schema=options.get("ledger_schema", "penstock"))
