"""Decides from the plan and the objects' beginnings whether the server can import them from S3.

The facts come from the server, the AWS configuration and AWS. AWS is asked about the RDS instance of a load here: its
class, its roles, and the maintenance windows that are near.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

from penstock.core.aws.credentials import AwsCredentials
from penstock.core.connect.connection import Connection
from penstock.core.connect.endpoints import is_rds_endpoint
from penstock.core.errors import DataError, PenstockError, SourceError, TargetError, UsageError
from penstock.core.slotted import slotted
from penstock.core.units import count_nouns
from penstock.core.values.diagnosis import Diagnosis, refusal, refuse
from penstock.core.values.job import LoadRules
from penstock.core.values.mode import CLIENT_ROUTE, ImportRights, RoutePlan
from penstock.core.values.names import quote_name
from penstock.core.values.notice import Notice
from penstock.core.values.source import ObjectSample
from penstock.loading.files.encodings import is_ascii_safe
from penstock.loading.files.streams import SourceReader
from penstock.loading.formats import format_of
from penstock.loading.imports.server import read_import_rights
from penstock.loading.values.objects import PlannedObject
from penstock.loading.values.plan import LoadPlan, SessionPlan, TargetPlan

if TYPE_CHECKING:
    from penstock.rds.describe import BriefQuestion
    from penstock.rds.values import AssociatedRole, InstanceClass, RdsDescription


CLIENT_REMEDY = "Use --via client."

_FEATURE = "s3Import"

# The first version in which COPY can skip a header in format text.
_TEXT_HEADER_MAJOR = 15


@slotted
class RouteFacts:
    """What decides whether the server can read the objects of a load."""

    rights: ImportRights
    # The configured AWS region, None if none is configured.
    region: str | None
    server_major: int
    # The roles of the RDS instance or cluster, None if the server is not on RDS or AWS did not answer.
    roles: Sequence[AssociatedRole] | None = None
    # The identifier of the instance or cluster.
    instance: str = ""


class ImportObstacle(NamedTuple):
    """A reason why the server cannot import the objects of a load."""

    # The part of the job that prevents the route. Messages have these words after "cannot be used with".
    what: str
    why: str


def plan_import(targets: Sequence[TargetPlan], rules: LoadRules, facts: RouteFacts) -> RoutePlan:
    """Return the route of a load whose objects the server imports.

    Raises UsageError or TargetError if the server cannot import them.
    """
    if not targets:
        return CLIENT_ROUTE
    obstacle = next(find_obstacles(targets, rules, server_major=facts.server_major), None)
    if obstacle is not None:
        raise UsageError(f"--via server cannot be used with {obstacle.what}", detail=obstacle.why, hint=CLIENT_REMEDY)
    refuse(find_lack(facts))
    return RoutePlan(via="server", region=facts.region or "")


def import_sessions(targets: Sequence[TargetPlan], sessions: SessionPlan) -> SessionPlan:
    """Return the session plan if the server imports the objects: the planned sessions, but at most one for each object.

    The number does not change during the load, because the measured throughput changes in steps when objects end.
    """
    objects = sum(len(target.objects) for target in targets)
    count, reason = sessions.initial, sessions.reason
    if objects < count:
        count, reason = objects, f"{count_nouns(objects, 'object')}, one in each session"
    return SessionPlan(initial=count, maximum=count, is_adaptive=False, reason=reason)


def find_obstacles(targets: Sequence[TargetPlan], rules: LoadRules, *, server_major: int) -> Iterator[ImportObstacle]:
    """Yield each option, source and format of the job with which the server cannot import objects."""
    if rules.on_error == "reject":
        yield ImportObstacle("--on-error reject", "A record that the table refuses undoes its whole object.")
    if rules.atomic and any(target.fills_table for target in targets):
        yield ImportObstacle("--atomic", "Each object is imported in a transaction of its own.")
    for target in targets:
        yield from _find_target_obstacles(target, server_major)


def _find_target_obstacles(target: TargetPlan, server_major: int) -> Iterator[ImportObstacle]:
    for source in target.objects:
        if not source.location.startswith("s3://"):
            yield ImportObstacle("sources other than S3", f"{source.uri} is not in S3.")
    found = format_of(target)
    if found.import_obstacle is not None:
        yield ImportObstacle(f"format {found.title(target.own)}", found.import_obstacle)
    if target.allows_suppressed_rows and not target.skips_triggers:
        what = f'row triggers of table "{target.table}" that fire before or instead of INSERT'
        why = "They may store records elsewhere, which the server does not report. --triggers disable disables them."
        yield ImportObstacle(what, why)
    if target.is_staged:
        what = f"--mode {target.job.mode}" if target.job.transform is None else "--transform"
        if target.job.landing.where == "table":
            what = f'table "{target.table}", which is filled from a staging table'
        yield ImportObstacle(what, "The server imports objects into the table itself.")
    yield from _find_dialect_obstacles(target, server_major)
    if target.job.types == "widen" or (target.job.types == "infer" and target.create_columns is not None):
        yield ImportObstacle(f"--types {target.job.types}", "Every value of the files is looked at here.")
    if target.job.set:
        yield ImportObstacle("--set", "COPY stores the fields of the files only.")
    if target.column_map.keep is not None:
        yield ImportObstacle("--skip", "COPY stores all fields of the files.")
    if target.column_map.notations:
        what = "--decimal-comma, --thousands and --date-order"
        yield ImportObstacle(what, "COPY stores the values as they are in the files.")
    if target.column_map.ends_empty:
        yield ImportObstacle("records that end with a delimiter", "COPY takes what is behind it for one more field.")


def _find_dialect_obstacles(target: TargetPlan, server_major: int) -> Iterator[ImportObstacle]:
    dialect = target.dialect
    if dialect.format == "tsv":
        why = (
            "COPY has no such format: its format text takes backslashes for escapes. If a character is in no file, csv "
            r"reads the same with it as the quote: --format csv --delimiter '\t' --quote '\x01' --null '\N'."
        )
        yield ImportObstacle("format tsv", why)
    if dialect.format == "text" and dialect.has_header and server_major < _TEXT_HEADER_MAJOR:
        yield ImportObstacle("a header in format text", f"COPY has that since PostgreSQL {_TEXT_HEADER_MAJOR}.")
    if len(dialect.nulls) > 1:
        yield ImportObstacle("several null texts", f"COPY takes one; these are {', '.join(map(repr, dialect.nulls))}.")
    if dialect.skip_lines:
        yield ImportObstacle("--skip-lines", "COPY skips a header only.")
    if not is_ascii_safe(dialect.encoding):
        yield ImportObstacle(f"encoding {dialect.encoding}", "penstock converts such files, and the server does not.")


def find_lack(facts: RouteFacts) -> Diagnosis | None:
    """Return what an import from S3 lacks on the server or in AWS, with a remedy, or None if nothing is lacking."""
    rights, subject = facts.rights, "import from S3"
    if not rights.exists:
        if rights.is_available:
            return refusal(subject, "extension aws_s3 does not exist", "Create it: CREATE EXTENSION aws_s3 CASCADE.")
        return refusal(
            subject,
            "the server has no extension aws_s3",
            f"{CLIENT_REMEDY} Only Amazon RDS and Aurora have it, and penstock's lab.",
        )
    if not rights.is_trusted:
        return refusal(
            subject,
            "aws_s3.table_import_from_s3 does not belong to extension aws_s3",
            "Drop schema aws_s3, and create the extension: CREATE EXTENSION aws_s3 CASCADE.",
            detail="Another role has created it; it could run anything with the loader's rights.",
        )
    role = quote_name(rights.role)
    lacking = [] if rights.may_use else [f"GRANT USAGE ON SCHEMA aws_s3 TO {role};"]
    lacking += [] if rights.may_execute else [f"GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA aws_s3 TO {role};"]
    if lacking:
        text = f'role "{rights.role}" may not call aws_s3.table_import_from_s3'
        return refusal(subject, text, f"Have an administrator run: {' '.join(lacking)}")
    if facts.region is None:
        return refusal(subject, "the region of the bucket is not known", "Set AWS_REGION to it.")
    return None if facts.roles is None else _find_role_lack(facts.roles, facts.instance)


def _find_role_lack(roles: Sequence[AssociatedRole], instance: str) -> Diagnosis | None:
    found = [role for role in roles if role.feature == _FEATURE]
    if any(role.status == "ACTIVE" for role in found):
        return None
    if not found:
        return refusal(
            "import from S3",
            f"{instance} has no role for feature {_FEATURE}",
            f"Add one: aws rds add-role-to-db-instance --db-instance-identifier {instance} --feature-name {_FEATURE} "
            "--role-arn ARN (of an Aurora cluster: add-role-to-db-cluster).",
        )
    return refusal(
        "import from S3",
        f"the role of {instance} for feature {_FEATURE} is {found[0].status}",
        "Wait until it is ACTIVE; if it is INVALID, correct its trust policy and add it again.",
        detail=f"{found[0].arn}.",
    )


def refuse_check(plan: LoadPlan) -> None:
    """Raise UsageError if --via server is given with --check. A check cannot use imports by the server."""
    if plan.route.is_import:
        raise UsageError(
            "--via server cannot be used with --check",
            detail="A check has the server parse records that it is sent.",
            hint=CLIENT_REMEDY,
        )


def refuse_parts(uris: Sequence[str]) -> None:
    """Raise TargetError if `uris`, the objects of which a part is loaded already, are not empty.

    The server imports only whole objects, so such an object can be resumed only with --via client.
    """
    if uris:
        raise TargetError(
            f'a part of "{uris[0]}" is loaded already',
            detail="The server imports whole objects only.",
            hint="Resume with --via client.",
        )


def check_importable(works: Sequence[PlannedObject], sources: SourceReader) -> None:
    """Raise SourceError or DataError if the server cannot import one of the objects as it is.

    The beginning of each object is read. A gzip object must have the metadata Content-Encoding: gzip, because the
    server decides by this whether to decompress.
    """
    for _, of_target in groupby(works, key=lambda work: work.target_index):
        _check_target(list(of_target), sources)


def _check_target(works: Sequence[PlannedObject], sources: SourceReader) -> None:
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
    """Return the error for an object that the server cannot import, given its beginning, or None if it can."""
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
    """Return the error for a gzip object without Content-Encoding: gzip, which the server would read as text."""
    name = shlex.quote(uri)
    return SourceError(
        f'the server cannot import "{uri}": it is gzip without the metadata Content-Encoding: gzip',
        detail="The server decompresses by that metadata only.",
        hint=f"Add it: aws s3 cp {name} {name} --metadata-directive REPLACE --content-encoding gzip. "
        f"Or: {CLIENT_REMEDY}",
    )


def plan_route(
    targets: Sequence[TargetPlan], rules: LoadRules, connection: Connection, *, described: RdsDescription | None
) -> RoutePlan:
    """Return the route of a load with --via server. Raises UsageError, TargetError, ServerError.

    `described` is AWS's description of the server; without it, the roles of an RDS instance are not checked.
    """
    instance, roles = roles_of(described)
    facts = RouteFacts(
        rights=read_import_rights(connection),
        region=AwsCredentials().s3_config().get("region"),
        server_major=connection.info.server_version // 10_000,
        roles=roles,
        instance=instance,
    )
    return plan_import(targets, rules, facts)


def roles_of(found: RdsDescription | None) -> tuple[str, tuple[AssociatedRole, ...] | None]:
    """Return the identifier and the roles of an RDS instance, including those of its cluster.

    Returns "" and None if they are not known.
    """
    owners = [] if found is None else [owner for owner in (found.instance, found.cluster) if owner is not None]
    # Report no roles if the cluster may not be described, because it may have the role that the instance lacks.
    if found is None or not owners or any(gap.call == "rds:DescribeDBClusters" for gap in found.gaps):
        return "", None
    return owners[0].identifier, tuple(role for owner in owners for role in owner.roles)


def begin_asking(host: str, *, is_worth: bool, patience_s: float) -> BriefQuestion | None:
    """Begin to ask AWS about the server `host`, and return the question, or None if AWS is not asked.

    AWS is not asked if the server is not on RDS, if `is_worth` is false, or if `patience_s` is 0. The answer is awaited
    for `patience_s` seconds.
    """
    if not is_worth or patience_s <= 0 or not is_rds_endpoint(host):
        return None
    from penstock.rds.describe import BriefQuestion  # noqa: PLC0415 (56 ms, botocore)

    return BriefQuestion(host, now=datetime.now(UTC), patience_s=patience_s)


def await_answer(question: BriefQuestion | None, *, on_notice: Callable[[str], None]) -> RdsDescription | None:
    """Return AWS's description of the server, or None if AWS was not asked or does not answer in time.

    If AWS does not answer, `on_notice` is called with the reason.
    """
    if question is None:
        return None
    found = question.answer()
    if found is None:
        on_notice(
            f"the vCPUs and the windows of the instance are not known: {question.refusal} (--aws-timeout is how long "
            "to wait; 0 does not ask)"
        )
    return found


def class_of(found: RdsDescription | None) -> InstanceClass | None:
    """Return the class of the described instance, None if it is not known."""
    return None if found is None or found.instance is None else found.instance.instance_class


def find_near_windows(found: RdsDescription | None, *, now: datetime | None = None) -> list[Notice]:
    """Return a notice for each maintenance or backup window of the described instance that begins soon or has begun."""
    if found is None:
        return []
    from penstock.rds.values import describe_near  # noqa: PLC0415 (2 ms, for servers on RDS)

    near = describe_near(found.windows, now=now or datetime.now(UTC))
    return [Notice(code="window", message=text) for text in near]
