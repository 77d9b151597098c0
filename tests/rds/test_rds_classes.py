"""What is computed from the name of an instance class equals what EC2 reports about it."""

from __future__ import annotations

from penstock.rds.shapes import count_vcpus

# Families that RDS for PostgreSQL and Aurora PostgreSQL run on, or ran on in the last ten years.
_FAMILIES = ("t3.", "t4g.", "m4.", "m5", "m6", "m7", "m8", "r4.", "r5", "r6", "r7", "r8", "x1", "x2", "x8g.", "c6gd.")

_NOT_IN_RDS = (".metal", ".nano")


def test_names_tell_the_vcpus_that_ec2_has() -> None:
    """EC2's own table is in moto; what the rule does not know, such as metal, is None and not wrong."""
    # It takes more than a second to import, in each process of a test run.
    from moto.ec2.models.instance_types import INSTANCE_TYPES

    known = {
        name: raw["VCpuInfo"]["DefaultVCpus"]
        for name, raw in INSTANCE_TYPES.items()
        if name.startswith(_FAMILIES) and "flex" not in name
    }
    told = {name: count_vcpus(f"db.{name}") for name in known}
    wrong = {name: (count, known[name]) for name, count in told.items() if count not in (None, known[name])}
    assert wrong == {}
    assert {
        name for name, count in told.items() if count is None and not any(size in name for size in _NOT_IN_RDS)
    } == set()


def test_older_classes_are_not_guessed() -> None:
    """Their sizes follow another rule."""
    assert [count_vcpus(name) for name in ("db.t2.micro", "db.m1.small", "db.m2.xlarge", "db.serverless")] == [None] * 4
