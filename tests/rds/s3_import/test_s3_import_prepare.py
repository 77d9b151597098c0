"""`penstock rds prepare-s3-import` makes what is missing and nothing else, and `--undo` removes that alone."""

from __future__ import annotations

import json
import re
import shlex
from typing import TYPE_CHECKING, Any

import botocore.session
import psycopg
import pytest
from botocore import xform_name
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from support.moto_rds import Events
from support.parts import rest

if TYPE_CHECKING:
    from collections.abc import Callable

    from rds.s3_import.conftest import Place
    from support.moto_rds import Parts

pytestmark = pytest.mark.part("rest")

_DROPS = (
    "DROP EXTENSION aws_s3",
    "DROP EXTENSION aws_commons",
    "DROP SCHEMA IF EXISTS aws_commons",
    "DROP SCHEMA IF EXISTS aws_s3",
)
_KEY = "arn:aws:kms:eu-west-1:123456789012:key/11111111-2222-3333-4444-555555555555"


@pytest.mark.part("main")
@pytest.mark.parametrize("kind", ["instance", rest("cluster")])
def test_fresh_server_is_prepared_and_undone(
    make_place: Callable[..., Place], kind: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """A second run changes nothing; --undo leaves IAM, RDS and the database as they were, and a second one nothing."""
    place = make_place(kind)
    before = place.state()
    assert place.run() == 0
    assert "route to S3  gateway endpoint vpce-" in capfd.readouterr().out
    prepared = place.state()
    (role,) = set(prepared["roles"]) - set(before["roles"])
    (policy,) = set(prepared["policies"]) - set(before["policies"])
    trust, attached = prepared["roles"][role]
    assert attached == [{"PolicyName": policy, "PolicyArn": prepared["policies"][policy]}]
    only_it = {"aws:SourceAccount": "123456789012", "aws:SourceArn": place.arn}
    assert trust["Statement"][0]["Condition"] == {"StringEquals": only_it}
    assert [feature for _, feature in prepared["associated"]] == ["s3Import"]
    assert {("aws_commons",), ("aws_s3",)} <= set(prepared["extensions"])
    with Events().watching() as events:
        assert place.run() == 0
    assert events.writes == []
    assert "nothing was missing" in capfd.readouterr().out
    assert place.state() == prepared
    assert place.run("--undo") == 0
    assert place.state() == before
    with Events().watching() as events:
        assert place.run("--undo") == 0
    assert events.writes == []


def test_plan_is_what_is_run(place: Place, capfd: pytest.CaptureFixture[str]) -> None:
    """The commands are those of AWS's command line, whose options are botocore's parameters; nothing is done."""
    before = place.state()
    for undo in ((), ("--undo",)):
        capfd.readouterr()
        with Events().watching() as events:
            assert place.run("--prefix", "it's 1* $x", "--plan", *undo) == 0
        assert events.writes == []
        lines = [line for line in capfd.readouterr().out.splitlines() if not line.startswith("#")]
        planned = [shlex.split(line, comments=True) for line in lines]
        with Events().watching() as events:
            assert place.run("--prefix", "it's 1* $x", *undo) == 0
        called = [words for words in planned if words[0] == "aws" and not words[2].startswith("describe-")]
        assert [_check_command(words) for words in called] == events.writes
        assert [words[-1] for words in planned if words[0] == "psql"] == (
            [*_DROPS] if undo else ["CREATE EXTENSION aws_s3 CASCADE"]
        )
    assert place.state() == before


def _check_command(words: list[str]) -> str:
    """Return the operation of a command, whose options must be those of botocore's model."""
    model = botocore.session.Session().get_service_model(words[1])
    (operation,) = [name for name in model.operation_names if xform_name(name, "-") == words[2]]
    members = model.operation_model(operation).input_shape.members
    known = {f"--{xform_name(name, '-')}": shape for name, shape in members.items()}
    for option, value in zip(words[3::2], words[4::2], strict=True):
        if option != "--region":
            assert known[option].type_name == "string" or json.loads(value)
    return str(operation)


def test_role_is_waited_for(place: Place, parts: Parts, capfd: pytest.CaptureFixture[str]) -> None:
    """It is PENDING at first."""
    parts.pending_looks = 2
    with Events().watching() as events:
        assert place.run() == 0
    after = events.asked[events.asked.index("AddRoleToDBInstance") :]
    assert after.count("DescribeDBInstances") > 2
    assert place.run("--undo") == 0


def test_policy_is_for_the_prefix_alone(place: Place) -> None:
    """What IAM would read as a pattern or a variable is escaped."""
    assert place.run("--prefix", 'raw/2024 "é" *?$') == 0
    listed, read = place.policy()["Statement"]
    escaped = 'raw/2024 "é" ${*}${?}${$}*'
    assert (listed["Action"], listed["Resource"]) == (["s3:ListBucket"], [f"arn:aws:s3:::{place.bucket}"])
    assert listed["Condition"] == {"StringLike": {"s3:prefix": [escaped]}}
    assert (read["Action"], read["Resource"]) == (["s3:GetObject"], [f"arn:aws:s3:::{place.bucket}/{escaped}"])
    assert place.run("--prefix", 'raw/2024 "é" *?$', "--undo") == 0


@pytest.mark.parametrize("bucket", ["s3://b", "B", "a/b", "b'; x", ""])
def test_what_is_no_bucket_is_refused(place: Place, bucket: str) -> None:
    """Before AWS is asked."""
    with Events().watching() as events:
        assert place.run("--bucket", bucket) == 2
        assert place.run("--prefix", "a\nb") == 2
        assert place.run("--prefix", "x" * 1025) == 2
    assert events.asked == []


def _encrypt(place: Place, **rule: str) -> None:
    rules = [{"ApplyServerSideEncryptionByDefault": {"SSEAlgorithm": "aws:kms", **rule}}]
    place.client("s3").put_bucket_encryption(Bucket=place.bucket, ServerSideEncryptionConfiguration={"Rules": rules})


def test_key_of_the_bucket_may_be_used(place: Place, capfd: pytest.CaptureFixture[str]) -> None:
    """Named by its ARN, or by an alias; AWS's own key needs no right. Not known, it is said."""
    _encrypt(place, KMSMasterKeyID=_KEY)
    assert place.run() == 0
    assert place.policy()["Statement"][2]["Resource"] == [_KEY]
    with Events(denied={"GetBucketEncryption": "s3:GetEncryptionConfiguration"}).watching() as events:
        assert place.run() == 0
    assert events.writes == []
    assert "cannot tell whether bucket" in capfd.readouterr().out
    assert place.run("--undo") == 0
    kms = place.client("kms")
    key = kms.create_key()["KeyMetadata"]
    kms.create_alias(AliasName=f"alias/{place.bucket}", TargetKeyId=key["KeyId"])
    _encrypt(place, KMSMasterKeyID=f"alias/{place.bucket}")
    assert place.run() == 0
    assert place.policy()["Statement"][2] == {
        "Sid": "PenstockDecrypt",
        "Effect": "Allow",
        "Action": ["kms:Decrypt"],
        "Resource": [key["Arn"]],
    }
    _encrypt(place)
    assert place.run() == 10
    assert "has changed" in capfd.readouterr().err
    assert place.run("--undo") == 0
    assert place.run() == 0
    assert len(place.policy()["Statement"]) == 2
    assert place.run("--undo") == 0


def test_two_places_share_role_and_extension(place: Place) -> None:
    """They stay until the last place is undone."""
    before = place.state()
    assert place.run("--prefix", "a/") == 0
    assert place.run("--prefix", "b/") == 0
    both = place.state()
    assert len(both["policies"]) == len(before["policies"]) + 2
    assert place.run("--prefix", "a/", "--undo") == 0
    one = place.state()
    assert (one["associated"], one["extensions"]) == (both["associated"], both["extensions"])
    assert len(one["policies"]) == len(before["policies"]) + 1
    with Events().watching() as events:
        assert place.run("--prefix", "b/") == 0
    assert events.writes == []
    assert place.run("--prefix", "b/", "--undo") == 0
    assert place.state() == before


def test_what_was_there_before_stays(place: Place) -> None:
    """An extension, or only aws_commons, that somebody else has created."""
    with psycopg.connect(place.database, autocommit=True) as admin:
        for name in ("aws_commons", "aws_s3"):
            admin.execute(f"CREATE EXTENSION {name}".encode())
            before = place.state()
            assert place.run() == 0
            assert place.run("--undo") == 0
            assert place.state() == before


def test_undo_leaves_what_another_extension_needs(place: Place) -> None:
    """aws_lambda needs aws_commons, too. All else goes."""
    before = place.state()
    assert place.run() == 0
    with psycopg.connect(place.database, autocommit=True) as admin:
        admin.execute("CREATE EXTENSION aws_lambda")
        assert place.run("--undo") == 0
        assert ("aws_commons",) in place.state()["extensions"]
        assert ("aws_s3",) not in place.state()["extensions"]
        admin.execute("DROP EXTENSION aws_lambda; DROP EXTENSION aws_commons; DROP SCHEMA IF EXISTS aws_commons")
        admin.execute("DROP SCHEMA IF EXISTS aws_lambda")
    assert place.state() == before


def test_undo_finds_what_is_half_undone(place: Place) -> None:
    """The extension without aws_commons, the role deleted by hand: the rest goes."""
    before = place.state()
    assert place.run() == 0
    (role,) = set(place.state()["roles"]) - set(before["roles"])
    iam = place.client("iam")
    for policy in iam.list_attached_role_policies(RoleName=role)["AttachedPolicies"]:
        iam.detach_role_policy(RoleName=role, PolicyArn=policy["PolicyArn"])
    iam.delete_role(RoleName=role)
    with psycopg.connect(place.database, autocommit=True) as admin:
        admin.execute("DROP EXTENSION aws_s3")
    assert place.run("--undo") == 0
    assert place.state() == before


def test_lost_tags_of_the_instance_are_written_again(place: Place) -> None:
    """What has tags of its own is penstock's; the extension is left, as nothing says who created it."""
    before = place.state()
    assert place.run() == 0
    keys = [tag["Key"] for tag in place.state()["tags"] if tag["Key"].startswith("penstock:")]
    place.client("rds").remove_tags_from_resource(ResourceName=place.arn, TagKeys=keys)
    with Events().watching() as events:
        assert place.run() == 0
    assert events.writes == ["AddTagsToResource"]
    place.client("rds").remove_tags_from_resource(ResourceName=place.arn, TagKeys=keys)
    assert place.run("--undo") == 0
    after = place.state()
    assert {**after, "extensions": [], "schemas": []} == {**before, "extensions": [], "schemas": []}
    assert ("aws_s3",) in after["extensions"]


def test_tags_copied_from_another_instance_are_left(place: Place) -> None:
    """As of a snapshot that was restored with its tags."""
    copied = [
        {"Key": "penstock:lease:0123456789abcdef", "Value": "by= for=rds-prepare-s3-import on=db-OTHER until=removed"},
        {"Key": "penstock:names:0123456789abcdef", "Value": "16384 penstock-s3import-other-1"},
        {"Key": "penstock:change:s3-role:penstock-s3import-other-1", "Value": "by=0123456789abcdef"},
    ]
    place.client("rds").add_tags_to_resource(ResourceName=place.arn, Tags=copied)
    before = place.state()
    assert place.run() == 0
    assert place.run("--undo") == 0
    assert place.state() == before


def test_json_is_one_object(place: Place, capfd: pytest.CaptureFixture[str]) -> None:
    """With the ARNs, the commands or what was done, and the route."""
    assert place.run("--plan", "--json") == 0
    planned: dict[str, Any] = json.loads(capfd.readouterr().out)
    assert planned["instance"] == place.owner
    assert re.fullmatch(r"arn:aws:iam::123456789012:role/penstock-s3import-loads-\d+-[0-9a-f]{8}", planned["role"])
    assert planned["done"] == []
    assert place.run("--json", "--quiet") == 0
    done: dict[str, Any] = json.loads(capfd.readouterr().out)
    assert len(done["done"]) == 6
    assert done["route"]["lacking"] == []
    assert place.run("--undo", "--quiet") == 0
    assert capfd.readouterr().out == ""


def test_undo_finds_the_database_of_the_extension(place: Place) -> None:
    """Another one than it is connected to, renamed since; or dropped, when there is nothing to drop."""
    elsewhere = ("--to", make_conninfo(place.to, dbname="postgres"))
    name, before = conninfo_to_dict(place.database)["dbname"], place.state()
    for statement in ('ALTER DATABASE "{0}" RENAME TO "{0} x"', 'DROP DATABASE "{0} x"'):
        assert place.run() == 0 if "RENAME" in statement else place.run("--to", _renamed(place)) == 0
        with psycopg.connect(place.database, dbname="postgres", autocommit=True) as admin:
            admin.execute(statement.format(name).encode())
        assert place.run(*elsewhere, "--undo") == 0
        if "RENAME" in statement:
            with psycopg.connect(place.database, dbname=f"{name} x") as connection:
                assert connection.execute("SELECT count(*) FROM pg_extension").fetchone() == (1,)
    with psycopg.connect(place.database, dbname="postgres", autocommit=True) as admin:
        admin.execute(f'CREATE DATABASE "{name}"'.encode())
    assert place.state() == before


def _renamed(place: Place) -> str:
    return make_conninfo(place.to, dbname=f"{conninfo_to_dict(place.to)['dbname']} x")
