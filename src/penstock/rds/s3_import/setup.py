"""Prepares a server for importing from S3, and undoes that. The journal is in the tags of the instance or cluster.

Before anything is created, a record of it is written as a tag. The journal does not say what was created: AWS and the
databases are asked for that. Each place (bucket and prefix) is a hold. The role and the extension are kept until the
last hold that names them is undone.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from penstock.changes.context import Context, Kind, Restored
from penstock.changes.journal import record, restore
from penstock.changes.records import SERVER_DATABASE
from penstock.changes.store_tags import TagStore, change_tags, hold_tags
from penstock.changes.values import SERVER, Change, Hold, RepairAction
from penstock.core.connect.connection import Connection, ConnectionFactory
from penstock.core.connect.errors import translate_errors
from penstock.core.errors import AwsError, PenstockError
from penstock.core.slotted import slotted
from penstock.core.sql import fetch_rows
from penstock.core.values.server import ServerIdentity
from penstock.rds.s3_import.steps import (
    EXTENSION,
    POLICY,
    ROLE,
    find_changes,
    find_left,
    list_made,
    name_holder,
    name_policy,
    name_role,
    plan_steps,
    plan_undo,
    tag_call,
    untag_call,
)
from penstock.rds.s3_import.values import (
    BucketKey,
    Call,
    ExtensionFacts,
    Found,
    Owner,
    PolicyFacts,
    RoleFacts,
    S3ImportReport,
    S3Prefix,
    S3Route,
    SetupStatement,
    Step,
    Wait,
    compose_command,
)


def look_at_extension(connection: Connection) -> ExtensionFacts:
    """Return whether extension aws_s3 is available and installed in the session's database. Raises ServerError."""
    with translate_errors("looking for extension aws_s3"):
        (found,) = fetch_rows(connection, "rds/aws_extension", ExtensionFacts)
    return found


def find_database(connection: Connection, oid: int) -> str | None:
    """Return the name of the database with this OID, None if it was dropped. Raises ServerError."""
    with translate_errors("looking for a database"):
        query = "SELECT d.datname::text FROM pg_catalog.pg_database AS d WHERE d.oid = %s::bigint::oid"
        row = connection.execute(query, [oid]).fetchone()
    return None if row is None else str(row[0])


def run_extension_statement(connection: Connection, text: str) -> None:
    """Run a statement that creates or drops the extension. Raises ServerError, TargetError.

    Creating it needs rds_superuser, and dropping it needs ownership.
    """
    with translate_errors(f"running {text}"):
        connection.execute(text.encode())


# How long to wait until RDS has added or removed a role, and how often to ask. RDS takes a minute or two.
_ROLE_TIMEOUT_S = 600.0
_ROLE_LOOK_S = 2.0


class Aws(Protocol):
    """The calls to AWS that the setup of an import from S3 needs. Methods raise AwsError."""

    def read_owner(self) -> Owner:
        """Return the cluster of the server, or its instance if it is not in a cluster, as it is now."""

    def read_tags(self, owner: Owner) -> dict[str, str]:
        """Return the tags of the instance or cluster, by key."""

    def find_role(self, name: str) -> RoleFacts | None:
        """Return the IAM role with this name, None if it does not exist."""

    def find_policy(self, arn: str) -> PolicyFacts | None:
        """Return the IAM policy with this ARN, None if it does not exist."""

    def find_key(self, bucket: str) -> BucketKey:
        """Return the user's KMS key with which objects of a bucket are encrypted by default."""

    def find_route(self) -> S3Route:
        """Return which subnets of the server's instance have a route to S3."""

    def call(self, call: Call) -> None:
        """Make a call to AWS."""

    def close(self) -> None:
        """Close all connections to AWS."""


@dataclass(slots=True)
class _OwnerTags:
    """The tags of an instance or a cluster, as an implementation of Tags."""

    aws: Aws
    owner: Owner
    run: Callable[[Sequence[Step]], None]

    def exists(self) -> bool:
        return True

    def read(self) -> dict[str, str]:
        return self.aws.read_tags(self.owner)

    def write(self, tags: Mapping[str, str]) -> None:
        self.run([tag_call(self.owner, tags)])

    def remove(self, keys: Sequence[str]) -> None:
        self.run([untag_call(self.owner, keys)])


@slotted
class _Wanted:
    """The steps that `prepare` will take, and the records that it will write first."""

    steps: list[Step]
    hold: Hold
    # The changes that must be recorded in the journal before the steps.
    new: list[Change]
    is_recorded: bool
    notes: tuple[str, ...]


@dataclass(kw_only=True)
class S3ImportSetup:
    """Prepares a server for importing from S3, and undoes the preparation. Methods raise PenstockError.

    The detail of an error says what was done so far.
    """

    # Connects to the server.
    connect: ConnectionFactory
    aws: Aws
    # Receives each step that was taken.
    tell: Callable[[str], None]
    # The connection, as for psql, in the commands of a plan.
    server: str
    # The profile of AWS in the commands of a plan.
    profile: str | None = None
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    _done: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._owner = self.aws.read_owner()
        control = self.connect.in_database(SERVER_DATABASE)
        self._control = control.connect(label="prepare-s3-import")
        self._context = Context(
            store=TagStore(connection=self._control, tags=_OwnerTags(self.aws, self._owner, self._run)),
            kinds=[S3Import(self._look, self._run)],
            notice=self.tell,
            concerns=lambda change: change.kind in (ROLE, POLICY, EXTENSION),
            server=self._identity,
        )
        try:
            control.refuse_pooler("prepare imports from S3")
        except PenstockError:
            self._control.close()
            raise

    def close(self) -> None:
        """End the session, and close the connections to AWS."""
        self._control.close()
        self.aws.close()

    # ---------------------------------------------------------------- prepare

    def plan(self, place: S3Prefix) -> S3ImportReport:
        """Return the commands that do what `prepare` would do for a bucket and prefix. Nothing is changed."""
        wanted = self._decide(place)
        steps = list(wanted.steps)
        if not wanted.is_recorded:
            steps.insert(0, tag_call(self._owner, hold_tags(wanted.hold) | change_tags(wanted.new)))
        return self._report(place, commands=self._compose(steps), notes=wanted.notes, route=self.aws.find_route())

    def prepare(self, place: S3Prefix) -> S3ImportReport:
        """Create what is missing so that the server may import from a bucket and prefix. Return what was done."""
        with self._context.lock(SERVER):
            wanted = self._decide(place)
            if not wanted.is_recorded:
                record(self._context, wanted.hold, wanted.new)
            self._run(wanted.steps)
        return self._report(place, done=tuple(self._done), notes=wanted.notes, route=self.aws.find_route())

    def _decide(self, place: S3Prefix) -> _Wanted:
        owner, store = self._owner, self._context.store
        holder_id = name_holder(owner, place)
        role, policy = name_role(owner), name_policy(owner, place)
        found = self._find(role, [policy], [self._look_here()])
        key = self.aws.find_key(place.bucket)
        try:
            steps = plan_steps(found, place, key)
        except PenstockError as error:
            made = f"an earlier one made {', '.join(list_made(found))}" if list_made(found) else "nothing was made"
            _add(error, f"This run changed nothing; {made}.")
            raise
        written = {(each.kind, each.name) for each in store.read_changes()}
        new = [each for each in find_changes(found, place, holder_id) if (each.kind, each.name) not in written]
        known = written | {(each.kind, each.name) for each in new}
        here = {str(each.database_oid) for each in found.extensions}
        held = [hold for hold in store.read_holds() if hold.holder_id == holder_id]
        names = {role, policy} | {name for kind, name in known if kind == EXTENSION and name in here}
        names |= {name for hold in held for name in hold.names}
        is_recorded = not new and any(set(hold.names) == names for hold in held)
        notes = () if key.reason is None else (f"cannot tell whether bucket {place.bucket} has a key: {key.reason}",)
        hold = self._make_hold(holder_id, tuple(sorted(names)))
        return _Wanted(steps=steps, hold=hold, new=new, is_recorded=is_recorded, notes=notes)

    def _make_hold(self, holder_id: str, names: tuple[str, ...]) -> Hold:
        return Hold(
            holder_id=holder_id,
            target_oid=SERVER,
            names=names,
            stands=True,
            reason="rds-prepare-s3-import",
            server=self._identity,
        )

    # ---------------------------------------------------------------- undo

    def plan_undo(self, place: S3Prefix) -> S3ImportReport:
        """Return the commands that do what `undo` would do for a bucket and prefix. Nothing is changed."""
        holder_id, store = name_holder(self._owner, place), self._context.store
        others = [hold for hold in store.read_holds() if hold.holder_id != holder_id]
        changes = [each for each in self._find_undone(place) if not any(hold.wants(each) for hold in others)]
        found = self._look(changes)
        steps = plan_undo(found, changes)
        tags = hold_tags(self._make_hold(holder_id, ())) | change_tags(changes)
        if gone := [key for key in tags if key in self.aws.read_tags(self._owner)]:
            steps.append(untag_call(self._owner, gone))
        return self._report(place, commands=self._compose(steps), notes=tuple(find_left(found, changes)))

    def undo(self, place: S3Prefix) -> S3ImportReport:
        """Remove what `prepare` made for a bucket and prefix, unless another prefix needs it. Return what was done."""
        holder_id = name_holder(self._owner, place)
        with self._context.lock(SERVER):
            changes = self._find_undone(place)
            notes = find_left(self._look(changes), changes)
            written = {(each.kind, each.name) for each in self._context.store.read_changes()}
            if lost := [each for each in changes if (each.kind, each.name) not in written]:
                # Somebody has removed tags of the instance. Record the roles and policies again that are known by their
                # own tags.
                record(self._context, self._make_hold(holder_id, tuple(each.name for each in changes)), lost)
            self._context.leaving = [holder_id]
            done = restore(self._context, [SERVER])
        if done.errors:
            raise done.errors[0]
        return self._report(place, done=tuple(self._done), notes=tuple(notes))

    def _find_undone(self, place: S3Prefix) -> list[Change]:
        """Return the changes for a place: the recorded ones, or if none is recorded, those that AWS's tags show."""
        owner, store = self._owner, self._context.store
        holder_id = name_holder(owner, place)
        names = {name for hold in store.read_holds() if hold.holder_id == holder_id for name in hold.names}
        recorded = [each for each in store.read_changes() if each.name in names]
        if recorded:
            return recorded
        found = self._find(name_role(owner), [name_policy(owner, place)], [])
        made = {each.name: each.owner_tag for each in found.policies}
        made |= {} if found.role is None else {found.role.name: found.role.owner_tag}
        own = [each for each in find_changes(found, place, holder_id) if made.get(each.name) == owner.resource_id]
        return own if any(each.kind == POLICY for each in own) else []

    # ---------------------------------------------------------------- both

    @property
    def _identity(self) -> ServerIdentity:
        return ServerIdentity.of_resource(self._owner.resource_id, address=self._owner.identifier)

    def _look(self, changes: Sequence[Change]) -> Found:
        roles = [each.name for each in changes if each.kind == ROLE] or [name_role(self._owner)]
        policies = [each.name for each in changes if each.kind == POLICY]
        databases = [find_database(self._control, int(each.name)) for each in changes if each.kind == EXTENSION]
        return self._find(roles[0], policies, [self._look_in(name) for name in databases if name is not None])

    def _find(self, role: str, policies: Sequence[str], extensions: Sequence[ExtensionFacts]) -> Found:
        owner = self.aws.read_owner()
        return Found(
            owner=owner,
            role=self.aws.find_role(role),
            policies=tuple(filter(None, [self.aws.find_policy(owner.policy_arn(name)) for name in policies])),
            extensions=tuple(extensions),
        )

    def _look_here(self) -> ExtensionFacts:
        with self.connect.connect(label="prepare-s3-import") as connection:
            return look_at_extension(connection)

    def _look_in(self, database: str) -> ExtensionFacts:
        with self.connect.in_database(database).connect(label="prepare-s3-import") as connection:
            return look_at_extension(connection)

    def _run(self, steps: Sequence[Step]) -> None:
        """Take steps. Raises PenstockError, with what was done so far in its detail."""
        for step in steps:
            try:
                self._take(step)
            except PenstockError as error:
                _add(error, f"Done so far: {', '.join(self._done)}." if self._done else "This run changed nothing.")
                again = "Then run it again: it does what is missing."
                error.hint = f"{error.hint} {again}" if error.hint else "Run it again: it does what is missing."
                raise

    def _take(self, step: Step) -> None:
        if isinstance(step, Call):
            self.aws.call(step)
        elif isinstance(step, SetupStatement):
            with self.connect.in_database(step.database).connect(label="prepare-s3-import") as connection:
                run_extension_statement(connection, step.text)
        else:
            self._await(step)
            return
        self._done.append(step.done)
        self.tell(step.done)

    def _await(self, step: Wait) -> None:
        began_s = self.clock()
        while True:
            found = [each.status for each in self.aws.read_owner().roles if each.arn == step.role_arn]
            if (found == ["ACTIVE"]) if step.until == "active" else not found:
                return
            if found == ["INVALID"] or self.clock() - began_s > _ROLE_TIMEOUT_S:
                raise AwsError(
                    f"role {step.role_arn} of {step.owner.kind} {step.owner.identifier} is not {step.until}",
                    detail=f"AWS calls it {found[0] if found else 'missing'}.",
                    hint=f"See the events of the {step.owner.kind}.",
                )
            self.sleep(_ROLE_LOOK_S)

    def _compose(self, steps: Sequence[Step]) -> tuple[str, ...]:
        return tuple(
            compose_command(each, owner=self._owner, server=self.server, profile=self.profile) for each in steps
        )

    def _report(self, place: S3Prefix, **found: Any) -> S3ImportReport:
        role, policy = name_role(self._owner), name_policy(self._owner, place)
        return S3ImportReport(place=place, owner=self._owner, role_name=role, policy_name=policy, **found)


def _add(error: PenstockError, fact: str) -> None:
    error.detail = f"{error.detail}\n{fact}" if error.detail else fact


class S3Import(Kind):
    """The role, the policies and the extension of imports from S3, as a Kind of change that a repair can undo.

    `look` returns which objects of given changes exist in AWS and in databases. `run` carries out steps.
    """

    def __init__(self, look: Callable[[Sequence[Change]], Found], run: Callable[[Sequence[Step]], None]) -> None:
        self._look = look
        self._run = run

    def handles(self, change: Change) -> bool:
        return change.kind in (ROLE, POLICY, EXTENSION)

    def restore(self, context: Context, changes: Sequence[Change], done: Restored) -> Sequence[Change]:  # noqa: ARG002
        self._run(plan_undo(self._look(changes), changes))
        return changes

    def describe(self, context: Context, change: Change) -> tuple[RepairAction, str]:  # noqa: ARG002 (see Kind)
        return "restore", "penstock rds prepare-s3-import made it"
