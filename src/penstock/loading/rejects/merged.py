"""Retries rejected records of a merge or a transform: a new load with the same statement loads a file of them.

They are removed from the rejects in the transaction that ends that load, so none is merged twice.
"""

from __future__ import annotations

from dataclasses import replace

from penstock.errors import TargetError
from penstock.files.probe import split_header
from penstock.loading.plan.columns import FILENAME_PLACEHOLDER
from penstock.loading.rejects.record_format import form_from_json
from penstock.model.load.job import LoadJob, TargetJob
from penstock.model.load.plan import name_fields
from penstock.model.load.reject import RecordForm
from penstock.model.source.dialect import Dialect, DialectOptions
from penstock.server.connect.connection import Connection
from penstock.server.ledger.rejects import RejectStore
from penstock.server.ledger.targets import read_landed


def find_merged_target(load_id: str, job: LoadJob, connection: Connection, *, schema: str) -> TargetJob | None:
    """Return the target of all rejected records of a load, if it has a merge or transform, to load a reject file.

    Returns None if the records are of several targets, or of a target without a merge or transform, or not all of one
    dialect, or if a column is set to the file's name. Raises ServerError.
    """
    store = RejectStore(schema, load_id)
    stored = store.read_forms(connection)
    if not stored or not store.count(connection):
        return None
    landed = [each for each in read_landed(connection, schema, load_id) if stored.keys() <= set(each.objects)]
    if len(landed) != 1 or landed[0].number >= len(job.targets):
        return None
    target = job.targets[landed[0].number]
    forms = [form_from_json(each.form) for each in stored.values()]
    is_one = all((form.header, form.dialect) == (forms[0].header, forms[0].dialect) for form in forms)
    has_file_name = any(FILENAME_PLACEHOLDER in value for value in target.set.values())
    if not is_one or has_file_name or target.landing.where != "staging":
        return None
    return replace(
        target,
        columns=target.columns or _name_row_names(forms[0]),
        dialect=_to_options(forms[0].dialect, target.dialect, has_header=bool(forms[0].header)),
    )


def _name_row_names(form: RecordForm) -> tuple[str, ...] | None:
    """Return names for all fields if the header lacks that of the row names, which one record alone does not show."""
    if not form.header:
        return None
    header = split_header(form.header, form.dialect, uri="")
    return name_fields(header, "row names") if len(header) + 1 == form.column_map.field_count else None


def _to_options(dialect: Dialect, options: DialectOptions, *, has_header: bool) -> DialectOptions:
    """Return options that give a reject file's whole dialect; it has no lines before the header."""
    if dialect.format == "jsonl":
        return replace(options, format="jsonl", encoding=dialect.encoding, skip_lines=0)
    is_csv = dialect.format == "csv"
    return replace(
        options,
        format=dialect.format,
        delimiter=dialect.delimiter,
        quote=dialect.quote if is_csv else None,
        escape=dialect.escape if is_csv else None,
        null=dialect.nulls,
        header=has_header,
        encoding=dialect.encoding,
        skip_lines=0,
    )


def discard_merged(load_id: str, connection: Connection, *, schema: str) -> None:
    """Remove the rejected records that the caller's transaction has stored. Raises TargetError, ServerError."""
    if not RejectStore(schema, load_id).discard(connection):
        raise TargetError(
            f"the rejected records of load {load_id} are not there any more",
            detail="Another session has retried or discarded them.",
            hint=f"See penstock rejects {load_id}.",
        )
