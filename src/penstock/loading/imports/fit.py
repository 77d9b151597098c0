"""Checks, before the first row, that the server can import each object as it is stored."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from penstock.errors import DataError, PenstockError, SourceError
from penstock.loading.formats import format_of
from penstock.loading.imports.route import CLIENT_REMEDY

if TYPE_CHECKING:
    from penstock.files import SourceReader
    from penstock.loading.work import ObjectWork
    from penstock.model.load.plan import TargetPlan
    from penstock.model.source.source import ObjectSample


def check_importable(works: Sequence[ObjectWork], sources: SourceReader) -> None:
    """Raise SourceError or DataError if an object cannot be imported as it is.

    A gzip object must have the metadata Content-Encoding: gzip: the server decompresses by that, not by content.
    """
    for _, of_target in groupby(works, key=lambda work: work.target_index):
        _check_target(list(of_target), sources)


def _check_target(works: Sequence[ObjectWork], sources: SourceReader) -> None:
    target, zipped = works[0].target, []
    for sample in sources.sample_all([work.source for work in works], target.job.dialect):
        if (misfit := find_misfit(sample, target)) is not None:
            raise misfit
        if sample.compression == "gzip":
            zipped.append(sample.source)
    for source, head in zip(zipped, sources.look_all(zipped), strict=True):
        if head.content_encoding != "gzip":
            raise missing_encoding(source.uri)


def find_misfit(sample: ObjectSample, target: TargetPlan) -> PenstockError | None:
    """Return why the server cannot import an object, given its beginning; None if it can."""
    uri = sample.source.uri
    if sample.compression not in ("none", "gzip"):
        return SourceError(
            f'the server cannot import "{uri}": it is compressed with {sample.compression}',
            detail="It decompresses gzip only.",
            hint=CLIENT_REMEDY,
        )
    if sample.separator is not None:
        return DataError(f'the server cannot import "{uri}": its first line names a separator', hint=CLIENT_REMEDY)
    # With a header, COPY skips the mark together with the header.
    if sample.bom is not None and (sample.bom != "UTF8" or not target.dialect.has_header):
        return DataError(
            f'the server cannot import "{uri}": it begins with a byte-order mark',
            detail="COPY takes it for data.",
            hint=CLIENT_REMEDY,
        )
    columns = format_of(target).map_sample(sample, target).columns
    if columns != target.column_map.columns:
        return DataError(
            f'the server cannot import "{uri}": its columns are ordered otherwise than those of the first file',
            detail=f"It has {', '.join(columns)}; the first file {', '.join(target.column_map.columns)}.",
            hint=f"{CLIENT_REMEDY} Or load it by itself.",
        )
    return None


def missing_encoding(uri: str) -> SourceError:
    """Return the error for a gzip object that the server would take for text."""
    name = shlex.quote(uri)
    return SourceError(
        f'the server cannot import "{uri}": it is gzip without the metadata Content-Encoding: gzip',
        detail="The server decompresses by that metadata only.",
        hint=f"Add it: aws s3 cp {name} {name} --metadata-directive REPLACE --content-encoding gzip. "
        f"Or: {CLIENT_REMEDY}",
    )
