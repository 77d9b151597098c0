"""The format of Parquet and Arrow files. Their columns have names and types, and their rows are read by ranges."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final, Literal

from penstock.core.errors import DataError, SourceError
from penstock.core.units import count_nouns
from penstock.core.values.dialect import DialectOptions
from penstock.core.values.job import TargetJob
from penstock.core.values.notice import Notice
from penstock.core.values.server import ServerFacts
from penstock.core.values.source import ColumnarFormat, ColumnarSample, ObjectSample
from penstock.core.values.table import ColumnMap, TableFacts
from penstock.ledger.values import CommittedRange
from penstock.loading.files.signatures import Signature
from penstock.loading.files.streams import SourceReader
from penstock.loading.formats.columns import find_loaded
from penstock.loading.formats.format import Depth, Format, Opened, RangeSums, ReadTools
from penstock.loading.formats.probe.columnar import probe_columnar, refuse_types, refuse_unsupported
from penstock.loading.formats.probe.probing import ProbeResult
from penstock.loading.formats.rows import open_rows
from penstock.loading.values.objects import PlannedObject
from penstock.loading.values.plan import TargetPlan
from penstock.loading.warned import WarningLog

_SIGNATURES: Final[dict[ColumnarFormat, Signature]] = {
    "parquet": Signature(magic=b"PAR1", is_printable=True, is_whole_word=True),
    "arrow": Signature(magic=b"ARROW1\x00\x00"),
}
_NAMES: Final[dict[ColumnarFormat, str]] = {"parquet": "a Parquet file", "arrow": "an Arrow file"}


class Columnar(Format):
    """Parquet and Arrow files. The attribute `own` of a sample is a ColumnarSample."""

    name = "columnar"
    is_binary = True
    is_typed = names_folders = True
    own_copy = "columnar files"
    import_obstacle = "COPY on the server reads text only."
    # Hints by SQLSTATE, in place of hints that name options of text.
    hints: Mapping[str, str] = {
        "22021": "Write texts that are valid UTF-8, or use --on-error reject.",
        "23502": "Write a value there, or use --on-error reject.",
    }

    def recognize(self, head: bytes, options: DialectOptions, *, is_whole: bool) -> bool:
        return options.format in _SIGNATURES or _find_signature(head) is not None

    def read_own(self, sample: ObjectSample, options: DialectOptions, sources: SourceReader) -> ColumnarSample:
        found, uri = _find_signature(sample.head), sample.source.uri
        if found is None:
            wanted = next(name for each, name in _NAMES.items() if each == options.format)
            raise SourceError(f'"{uri}" is not {wanted}', hint="Leave --format out, or correct it.")
        message = f'"{uri}" is {_NAMES[found]}, not delimited text'
        if sample.compression != "none":
            raise SourceError(message, hint="Decompress it first: its columns are read by ranges.")
        if options.format not in (None, found):
            raise DataError(message, hint="Load it separately, without options for text.")
        file, opened = sources.open_columnar(sample.source, found)
        with file:
            return opened.describe()

    def title(self, own: object) -> str:
        return _described(own).format

    def probe(
        self, sample: ObjectSample, job: TargetJob, facts: TableFacts | None, *, server: ServerFacts, rejects: bool
    ) -> ProbeResult:
        return probe_columnar(_described(sample.own), job, uri=sample.source.uri)

    def check_sample(self, sample: ObjectSample, target: TargetPlan, warnings: WarningLog, *, depth: Depth) -> None:
        own, uri = _described(sample.own), sample.source.uri
        probe_columnar(own, target.job, uri=uri)
        refuse_unsupported(own, self.map_object(own.names, target, uri=uri), target, uri=uri)

    def count_lines(self, sample: ObjectSample) -> int:
        return 2 if _described(sample.own).rows else 0

    def map_first(self, sample: ObjectSample, target: TargetPlan, *, rejects: bool) -> ColumnMap:
        found = super().map_first(sample, target, rejects=rejects)
        refuse_unsupported(_described(sample.own), found, target, uri=sample.source.uri)
        return found

    def find_header(self, sample: ObjectSample, target: TargetPlan) -> Sequence[str] | None:
        return _described(sample.own).names

    def type_columns(self, own: object, fields: Mapping[str, int], *, uri: str) -> dict[str, str]:
        sample = _described(own)
        refuse_types(sample, list(fields.values()), uri=uri)
        return {name: sample.fields[index].sql_type or "" for name, index in fields.items()}

    def find_notices(
        self, sample: ObjectSample, job: TargetJob, facts: TableFacts | None, sources: SourceReader
    ) -> Sequence[Notice]:
        """Return a warning for each bytea column of a new table if all its values in the file are text."""
        own = _described(sample.own)
        loaded = set(find_loaded(own.names, job).values())
        untold = [field.name for index, field in enumerate(own.fields) if field.is_untold and index in loaded]
        if facts is not None or not untold:
            return ()
        file, opened = sources.open_columnar(sample.source, own.format)
        with file:
            texts = opened.read_as_text(untold)
        reason = "BINARY without a logical type is created as bytea, and all its values are text"
        hint = "Create the table with columns of type text first to load them as text."
        return [
            Notice(code="binary-text", message=f'column "{name}": {reason}', uri=sample.source.uri, hint=hint)
            for name, is_text in texts.items()
            if is_text
        ]

    def describe(self, target: TargetPlan) -> str:
        own = _described(target.own)
        parts = ("row group", "row groups") if own.format == "parquet" else ("record batch", "record batches")
        columns, rows = count_nouns(len(own.fields), "column"), count_nouns(own.rows, "row")
        first = " in the first file" if len(target.objects) > 1 else ""
        return f"{own.format}, {columns}, {rows}, {count_nouns(own.parts, *parts)}{first}"

    def text_bytes(self, works: Sequence[PlannedObject], sample: ObjectSample, size_bytes: int) -> float:
        own = _described(sample.own)
        row_bytes = sum(own.fields[index].value_bytes for index in find_loaded(own.names, works[0].target.job).values())
        rows = size_bytes * own.rows / (sample.source.size_bytes or 1)
        return row_bytes * (rows - sum(work.coverage.rows for work in works))

    def open(self, work: PlannedObject, tools: ReadTools, *, sums: RangeSums | None = None) -> Opened:
        return open_rows(self, work, tools, sums=sums)

    def compare(
        self, work: PlannedObject, committed: Sequence[CommittedRange], tools: ReadTools
    ) -> Literal["same", "grown", "changed"]:
        # First compare the rows in the form in which they are sent without rejects, which may be the binary format. If
        # they differ, compare them as text, because an earlier run with --on-error reject has sent them as text.
        try:
            state = super().compare(work, committed, replace(tools, rejects_torn=False))
        except DataError:
            # A row cannot be sent. Either it was rejected when the object was loaded, or the object has changed since.
            state = "changed"
        return state if state != "changed" else super().compare(work, committed, replace(tools, rejects_torn=True))


def _find_signature(head: bytes) -> ColumnarFormat | None:
    return next((each for each, signature in _SIGNATURES.items() if signature.begins(head)), None)


def _described(own: object) -> ColumnarSample:
    assert isinstance(own, ColumnarSample)
    return own
