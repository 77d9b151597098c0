"""Runs one session of the server's route: each object is looked at, imported, looked at again, and committed."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from penstock.copyformat import make_encoder
from penstock.errors import FileLocation, PenstockError, SourceError
from penstock.files.encodings import client_encoding
from penstock.loading.rejects.explain import explain_failure
from penstock.model.load.accounts import SessionTotals, Stopwatch
from penstock.server.copy.copy import CopyFailed, Superseded
from penstock.server.imports.call import S3Place, read_result
from penstock.server.ledger.committed import insert_object, lacks_object
from penstock.server.ledger.ledger import taken_over

if TYPE_CHECKING:
    from penstock.loading.context import LoadTools
    from penstock.loading.imports.feed import ImportedObject, ObjectFeed
    from penstock.loading.work import ObjectWork
    from penstock.model.load.ledger import Claim
    from penstock.model.source.block import CopySpec
    from penstock.server.imports.session import ImportSession

_log = logging.getLogger(__name__)

_T = TypeVar("_T")


class ObjectSession:
    """Imports objects until the feed is empty, each with its ledger row in one transaction."""

    # Every object is committed as soon as it is imported.
    has_sealed = False

    def __init__(
        self, number: int, session: ImportSession, feed: ObjectFeed, tools: LoadTools, *, claim: Claim, region: str
    ) -> None:
        self.number = number
        self.session = session
        self.totals = SessionTotals()
        self.is_in_conflict = False
        # The object that is imported now, and whether it was cancelled because it showed no progress.
        self.current: ImportedObject | None = None
        self.is_silent = False
        self._feed = feed
        self._tools = tools
        self._claim = claim
        self._region = region
        self._watch = Stopwatch(tools.clock)

    def run(self) -> None:
        """Import objects until there are none; raises PenstockError, or Abandoned when the load failed elsewhere."""
        self._watch.lap()
        while (taken := self._feed.take(session=self.number)) is not None:
            self._import(taken)

    def commit(self) -> None:
        """Do nothing: nothing is left to commit."""

    def _import(self, taken: ImportedObject) -> None:
        work, seconds = taken.work, self.totals.seconds
        spec, place = import_spec(work), find_place(work.source.location, self._region)
        self._guarded(taken, self.session.begin)
        seconds.committing_s += self._watch.lap()
        self._check_version(work, "before")
        seconds.waiting_s += self._watch.lap()
        self.current = taken
        try:
            text = self._guarded(
                taken,
                lambda: self.session.import_object(spec, place, has_header=work.target.dialect.has_header),
            )
        finally:
            self.current = None
        rows = read_result(text)
        seconds.sending_s += self._watch.lap()
        self._check_version(work, "after")
        seconds.waiting_s += self._watch.lap()
        self._tools.warnings.refuse()
        record = insert_object(self._tools.ledger.schema, self._claim, work.number, rows=rows)
        self._guarded(taken, lambda: self.session.commit(record))
        seconds.committing_s += self._watch.lap()
        self.totals.rows_committed += rows
        self.totals.bytes_copied += taken.size_bytes
        self._feed.note_imported(taken, rows)
        _log.info("session %d: imported %s, %d rows", self.number, work.source.uri, rows)

    def _check_version(self, work: ObjectWork, when: str) -> None:
        """Raise SourceError if the object is not the one that was listed. The session's end rolls its rows back."""
        head = self._tools.sources.look(work.source)
        listed = work.source.version or ""
        if (head.version or "").strip('"') != listed.strip('"'):
            raise SourceError(
                f'"{work.source.uri}" was replaced while the server imported it',
                detail=f"It was listed with the ETag {listed}; {when} the import it has {head.version}. None of its "
                "rows are stored.",
                hint="Load it again when no process writes to it.",
            )

    def _guarded(self, taken: ImportedObject, act: Callable[[], _T]) -> _T:
        try:
            return act()
        except CopyFailed as failure:
            if lacks_object(failure.report, self._tools.ledger.schema):
                raise taken_over(self._claim.load_id) from failure
            raise self._explain(failure, taken.work) from failure
        except Superseded as exc:
            raise taken_over(self._claim.load_id) from exc

    def _explain(self, failure: CopyFailed, work: ObjectWork) -> PenstockError:
        if self.is_silent:
            return SourceError(
                f'the import of "{work.source.uri}" showed no progress and was cancelled',
                hint="Check that the server has a route to S3: a gateway endpoint for S3 in its VPC, or NAT; and the "
                "outbound rules of its security group. Or use --via client.",
            )
        return explain_failure(
            failure,
            where=FileLocation(file=work.source.uri, line=failure.context.line),
            working_names=work.working_names,
            target=work.target,
            is_in_conflict=self.is_in_conflict,
        )


def import_spec(work: ObjectWork) -> CopySpec:
    """Return the table, the columns and the options of COPY for an object."""
    target = work.target
    return make_encoder(
        target.dialect,
        target.column_map,
        table=target.table if work.landing is None else work.landing,
        encoding=client_encoding(target.dialect.encoding),
    ).spec


def find_place(location: str, region: str) -> S3Place:
    """Return the bucket and key of an s3:// URL.

    >>> find_place("s3://bucket/a/b.csv", "eu-west-1")
    S3Place(bucket='bucket', key='a/b.csv', region='eu-west-1')
    """
    bucket, _, key = location.removeprefix("s3://").partition("/")
    return S3Place(bucket=bucket, key=key, region=region)
