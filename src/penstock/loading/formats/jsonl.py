"""JSON Lines: each line is a JSON object, whose names are those of columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from penstock.core.errors import DataError
from penstock.core.values.dialect import Notice
from penstock.loading.formats.columns import find_whole_column, map_names, refuse_many_names, refuse_unknown_names
from penstock.loading.formats.probe.json_lines import find_names, is_json_lines, probe_json_lines, refuse_document
from penstock.loading.formats.text import Textual
from penstock.loading.values.plan import table_after_creation

if TYPE_CHECKING:
    from penstock.core.values.dialect import DialectOptions
    from penstock.core.values.job import TargetJob
    from penstock.core.values.server import ServerFacts
    from penstock.core.values.source import ObjectSample
    from penstock.core.values.table import ColumnMap, TableFacts
    from penstock.loading.formats.format import Depth
    from penstock.loading.formats.probe.probing import ProbeResult
    from penstock.loading.values.plan import TargetPlan
    from penstock.loading.warned import WarningLog


class JsonLines(Textual):
    """The format JSON Lines. Records are converted to COPY text (rust/src/json_lines.rs)."""

    name = "jsonl"
    is_by_name = True

    def owns(self, sample: ObjectSample, options: DialectOptions) -> bool:
        return is_json_lines(sample.head, options, is_whole=sample.is_whole)

    def check_content(self, sample: ObjectSample, options: DialectOptions) -> None:
        refuse_document(sample.head, is_whole=sample.is_whole, uri=sample.source.uri, compression=sample.compression)

    def probe(
        self, sample: ObjectSample, job: TargetJob, facts: TableFacts | None, *, server: ServerFacts, rejects: bool
    ) -> ProbeResult:
        """Do as `Format.probe`. Also raise DataError if no record has a name that a new table's column could have."""
        uri = sample.source.uri
        found = probe_json_lines(
            sample.head,
            options=job.dialect,
            is_whole=sample.is_whole,
            table_columns=() if facts is None else [column.name for column in facts.columns],
            uri=uri,
            first_line=sample.first_line,
            rejects=rejects,
            compression=sample.compression,
        )
        names = job.columns if job.columns is not None else found.header or ()
        if facts is not None and job.transform is None:
            return replace(found, notices=_find_whole_notices(names, job, facts, uri=uri))
        refuse_many_names(len(names), uri=uri)
        if not names:
            raise DataError(
                "no record names a column",
                detail=f"{uri}: its first block has no JSON object with a name.",
                hint="Name the columns with --columns.",
            )
        return found

    def check_sample(self, sample: ObjectSample, target: TargetPlan, warnings: WarningLog, *, depth: Depth) -> None:
        """Check nothing, because a record may lack any name."""

    def map_first(self, sample: ObjectSample, target: TargetPlan, *, rejects: bool) -> ColumnMap:
        if not rejects:
            table = table_after_creation(target)
            refuse_unknown_names(target.header or (), job=target.job, table=table, uri=sample.source.uri)
        return super().map_first(sample, target, rejects=rejects)

    def map_object(self, header: Sequence[str] | None, target: TargetPlan, *, uri: str) -> ColumnMap:
        return map_names(header or (), job=target.job, table=table_after_creation(target), uri=uri)

    def find_header(self, sample: ObjectSample, target: TargetPlan) -> Sequence[str] | None:
        columns = [column.name for column in table_after_creation(target).columns]
        return find_names(sample.head, is_whole=sample.is_whole, table_columns=columns)


def _find_whole_notices(names: Sequence[str], job: TargetJob, facts: TableFacts, *, uri: str) -> tuple[Notice, ...]:
    """Warn if records are stored whole although all their names are columns of the table."""
    whole = find_whole_column(job, facts)
    if whole is None or not names or any(facts.column(name) is None for name in names):
        return ()
    message = f'each record is stored whole in column "{whole}", although its names are columns of the table'
    hint = f"Use --columns {','.join(names)} to load the values of these names."
    return (Notice(code="column-names", message=message, uri=uri, hint=hint),)
