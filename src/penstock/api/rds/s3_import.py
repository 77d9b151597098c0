"""Prepares an RDS instance or an Aurora cluster for importing from S3, and undoes that."""

from __future__ import annotations

import os
from collections.abc import Callable

from penstock.api.connect import connect_to
from penstock.api.rds.describe import find_full_host
from penstock.aws.s3_import import RdsS3Import
from penstock.changes.s3_import.setup import S3ImportSetup
from penstock.server.connect.conninfo import describe_target, given_settings, parse_conninfo
from penstock.server.connect.route import parse_tunnel, resolve_tunnel


def open_s3_import(
    to: str | None = None,
    *,
    tell: Callable[[str], None] = lambda _: None,
    profile: str | None = None,
    tunnel: str | None = None,
    role: str | None = None,
    iam_auth: bool = False,
) -> S3ImportSetup:
    """Return the setup of the server that `to` or the PG* variables name. The caller closes it.

    `profile` is that of AWS. Raises PenstockError.
    """
    host = find_full_host(to)
    connect = connect_to(to, tunnel=tunnel, role=role, iam_auth=iam_auth)
    given = given_settings(parse_conninfo(to or ""), os.environ)
    given.pop("dbname", None)
    if tunnel is not None:
        end = parse_tunnel(tunnel)
        given |= {"hostaddr": resolve_tunnel(end), "port": str(end.port)}
    aws = RdsS3Import(host, profile=profile)
    try:
        return S3ImportSetup(connect=connect, aws=aws, tell=tell, server=describe_target(given), profile=profile)
    except BaseException:
        aws.close()
        raise
