"""Finds and describes the RDS instance or cluster that a connection string or a name means."""

from __future__ import annotations

import os
from datetime import datetime
from typing import TYPE_CHECKING

from penstock.aws.rds import describe_instance
from penstock.errors import UsageError
from penstock.model.server.endpoints import parse_endpoint
from penstock.server.connect.conninfo import given_settings, parse_conninfo

if TYPE_CHECKING:
    from penstock.model.server.rds import RdsDescription


def describe_rds(
    wanted: str | None = None,
    *,
    now: datetime,
    to: str | None = None,
    region: str | None = None,
    profile: str | None = None,
) -> RdsDescription:
    """Return AWS's description of `wanted`, or of the server that `to` or the PG* variables name.

    `wanted` is an endpoint, an identifier or a resource id. `region` and `profile` are those of AWS; by default the
    configured ones are used. docs/rds.md lists the AWS permissions. Raises UsageError, AwsError.
    """
    if wanted is not None and to is not None:
        raise UsageError("an endpoint or identifier cannot be used with --to", hint="Use one of them.")
    if wanted is None:
        wanted = find_full_host(to)
    return describe_instance(wanted, now=now, region=region, profile=profile)


def find_full_host(to: str | None = None) -> str:
    """Return the host that `find_host` returns. Raises UsageError if its name has no dot, as every endpoint has.

    AWS's functions would read a name without a dot as an identifier.
    """
    host = find_host(to)
    if "." not in host:
        raise UsageError(
            f'host "{host}" is not an endpoint of Amazon RDS',
            hint="Through a tunnel, give the endpoint as host and the tunnel's end as hostaddr and port.",
        )
    return host


def find_host(to: str | None = None) -> str:
    """Return the host that a connection string or the PG* variables name; if they name several, the first one of RDS.

    Raises UsageError if they name no host.
    """
    named = given_settings(parse_conninfo(to or ""), os.environ).get("host", "")
    hosts = [host for host in named.split(",") if host and not host.startswith("/")]
    if not hosts:
        raise UsageError(
            "no RDS instance was given",
            hint="Name its endpoint or identifier, or its host by --to or PGHOST.",
        )
    return next((host for host in hosts if parse_endpoint(host)), hosts[0])
