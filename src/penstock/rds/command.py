"""`penstock rds`: commands for servers of Amazon RDS.

`penstock rds certificates` reads the certificate that a server shows, and verifies it as libpq's sslmode=verify-full
does.
"""

from __future__ import annotations

import os
import shlex
import socket
import ssl
import struct
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from penstock.api.connect import connect_to
from penstock.cli.options import SERVER, Json, Profile, Quiet, Region, To, takes, warn_of_secrets
from penstock.cli.output import Messages, write_result
from penstock.core.connect.conninfo import describe_target, given_settings, parse_conninfo
from penstock.core.connect.route import parse_tunnel, resolve_tunnel
from penstock.core.connect.tls import (
    RootFile,
    RootSearch,
    ServerCertificate,
    bundle_url,
    missing_roots,
    read_name,
    search_roots,
    show_name,
)
from penstock.core.errors import ServerError, UsageError
from penstock.core.words import line_up
from penstock.rds.describe import read_full_host
from penstock.rds.s3_import.aws import RdsS3Import
from penstock.rds.s3_import.setup import S3ImportSetup
from penstock.rds.s3_import.values import Owner, S3ImportReport, S3Route, parse_place
from penstock.rds.view import describe_lines, description_object

# How many seconds to wait for each answer of the server.
_LOOK_TIMEOUT_S = 10
# The message SSLRequest, which asks a server for TLS (postgresql.org/docs/current/protocol-message-formats.html).
_SSL_REQUEST = struct.pack("!ii", 8, 80877103)


def look_at_server(host: str, port: int, *, roots: Path, address: tuple[str, int] | None = None) -> ServerCertificate:
    """Return the certificate of a server after verifying it as libpq does with sslmode=verify-full.

    `roots` is the file of root certificates. Nothing is sent to the server after the TLS handshake. `address` is the
    address to connect to instead of `host` and `port`, such as the near end of a tunnel. Raises ServerError.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(cafile=roots)
    target = f"{host}:{port}" if address is None else f"{host} at {address[0]}:{address[1]}"
    try:
        with socket.create_connection(address or (host, port), timeout=_LOOK_TIMEOUT_S) as plain:
            plain.sendall(_SSL_REQUEST)
            if plain.recv(1) != b"S":
                raise ServerError(f"{target} does not speak TLS", hint="Set rds.force_ssl or ssl on the server.")
            with context.wrap_socket(plain, server_hostname=host) as encrypted:
                fields = encrypted.getpeercert() or {}
    except ssl.SSLCertVerificationError as exc:
        raise ServerError(
            f"the certificate of {target} could not be verified",
            detail=f"{exc.verify_message[:1].upper()}{exc.verify_message[1:]}, with the roots of {roots}.",
            hint="Check that the host name is the server's own, and that the file has the root that its certificate "
            "was issued by; aws rds describe-db-instances shows its CACertificateIdentifier.",
        ) from exc
    except OSError as exc:
        raise ServerError(
            f"could not read the certificate of {target}",
            detail=f"{exc.strerror or exc}.",
            hint="Check the host name and port, and that no firewall or security group blocks the connection.",
            is_transient=True,
        ) from exc
    names: dict[str, tuple[tuple[tuple[str, str], ...], ...]] = fields  # type: ignore[assignment]
    return ServerCertificate(
        name=show_name(read_name(names["subject"])),
        issuer=show_name(read_name(names["issuer"])),
        expires_at=datetime.fromtimestamp(ssl.cert_time_to_seconds(str(fields["notAfter"])), UTC),
    )


def show(
    wanted: Annotated[
        str | None,
        typer.Argument(
            metavar="ENDPOINT|IDENTIFIER",
            show_default=False,
            help="Endpoint (or a host name that DNS leads there), identifier or resource id of an instance or a "
            "cluster; by default the host of --to.",
        ),
    ] = None,
    to: To = None,
    security_group: Annotated[
        list[str] | None,
        typer.Option(
            "--security-group",
            metavar="ID",
            help="A security group of this host, for rules that name groups. May be given several times (default: "
            "those of EC2's instance metadata).",
        ),
    ] = None,
    region: Region = None,
    profile: Profile = None,
    as_json: Json = False,
) -> None:
    """Show what AWS reports of an instance or a cluster.

    This is hardware, storage, parameter groups, windows and pending changes. Changes nothing, and does not connect to
    the server. Calls that are denied are shown at the end, with AWS's reason; docs/rds.md has the IAM policy.

    Exit codes: 0 it is shown, 2 no instance was given, 10 AWS cannot be reached or does not know it.
    """
    from datetime import UTC, datetime

    from penstock.rds.describe import describe_rds

    warn_of_secrets(to)
    found = describe_rds(
        wanted,
        now=datetime.now(UTC),
        to=to,
        region=region,
        profile=profile,
        security_groups=tuple(security_group or ()),
    )
    write_result(description_object(found) if as_json else describe_lines(found))


def find_certificates(host: str | None) -> RootSearch:
    """Return in which files root certificates for a host were looked for, and which of the files would be used.

    If `host` is None, they are those for any server of RDS.
    """
    given = os.environ.get("PGSSLROOTCERT")
    return search_roots(host, os.environ, given=given or None, now=datetime.now(UTC))


def verify_server(search: RootSearch, *, host: str, port: int, tunnel: str | None = None) -> ServerCertificate:
    """Return a server's certificate after verifying it as sslmode=verify-full does.

    `search` has the file of root certificates, and `tunnel` is the near end of a tunnel as HOST:PORT. Raises
    ServerError, UsageError.
    """
    if search.chosen is None:
        raise missing_roots(host, search)
    end = None if tunnel is None else parse_tunnel(tunnel)
    address = None if end is None else (resolve_tunnel(end), end.port)
    return look_at_server(host, port, roots=search.chosen.path, address=address)


Port = Annotated[int, typer.Option("--port", metavar="PORT", help="Use this endpoint port.", min=1, max=65535)]
Tunnel = Annotated[
    str | None,
    typer.Option("--tunnel", metavar="localhost:PORT", help="Connect to this end of a tunnel to the server."),
]


def certificates(
    host: Annotated[
        str | None,
        typer.Option("--host", metavar="HOST", help="Connect to this endpoint, and verify its certificate."),
    ] = None,
    port: Port = 5432,
    tunnel: Tunnel = None,
    as_json: Json = False,
) -> None:
    """Show whether sslmode=verify-full works, and why. Show what Amazon's root certificates are.

    Exit codes: 0 it works, 7 it does not.
    """
    if tunnel is not None and host is None:
        raise UsageError("--tunnel needs the server's name", hint="Name the server at its far end with --host.")

    search = find_certificates(host)
    lines, found = _describe(search), _search_object(search)
    failure: ServerError | None = None
    if host is not None:
        try:
            server = verify_server(search, host=host, port=port, tunnel=tunnel)
        except ServerError as error:
            failure = error
        else:
            lines.append(_describe_server(host, server))
            found["server"] = {"name": server.name, "issuer": server.issuer, "expires_at": server.expires_at}
    elif search.chosen is None:
        lines.append("sslmode=verify-full would not work: no root certificates of Amazon RDS were found")
        lines.append(f"download them from {bundle_url(None)} (docs/access.md)")
    found["verify_full"] = failure is None and search.chosen is not None
    if failure is None or not as_json:
        write_result(found if as_json else lines)
    if failure is not None:
        raise failure
    if search.chosen is None:
        raise typer.Exit(ServerError.exit_code)


def _describe(search: RootSearch) -> list[str]:
    """Return a line for each file searched, and a line for each of Amazon's certificates in the file that is used."""
    lines = ["named by PGSSLROOTCERT:" if search.is_given else "searched:"]
    lines += [f"  {file.path}: {_content(file, is_chosen=file is search.chosen)}" for file in search.files]
    if search.chosen is not None:
        amazons = [each for each in search.chosen.certificates if each.is_amazons]
        others = len(search.chosen.certificates) - len(amazons)
        lines.append(f"root certificates in {search.chosen.path}:")
        lines += [f"  {each.name}, expires {_day(each.expires_at)}" for each in amazons]
        lines += [f"  and {others} that are not Amazon's"] if others else []
    return lines


def _content(file: RootFile, *, is_chosen: bool) -> str:
    if file.problem is not None:
        return file.problem[:1].lower() + file.problem[1:]
    count = f"certificates: {len(file.certificates)}"
    return f"{count}, used for servers of Amazon RDS" if is_chosen else f"{count}, none that would verify the server"


def _describe_server(host: str, server: ServerCertificate) -> str:
    return (
        f"sslmode=verify-full works: {host} showed a certificate for {server.name}, issued by {server.issuer}, which "
        f"expires {_day(server.expires_at)}"
    )


def _search_object(search: RootSearch) -> dict[str, Any]:
    return {
        "looked_at": [{"path": file.path, "problem": file.problem} for file in search.files],
        "file": None if search.chosen is None else search.chosen.path,
        "is_given": search.is_given,
        "certificates": [
            {"name": each.name, "unit": each.unit, "expires_at": each.expires_at}
            for each in (search.chosen.certificates if search.chosen is not None else ())
        ],
    }


def _day(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d}"


def open_s3_import(
    to: str | None = None,
    *,
    tell: Callable[[str], None] = lambda _: None,
    profile: str | None = None,
    tunnel: str | None = None,
    role: str | None = None,
    iam_auth: bool = False,
) -> S3ImportSetup:
    """Return the object that prepares imports from S3 for the server that `to` or the PG* variables name.

    The caller closes it. `tell` is called with each notice and with what each step has done. `profile` is a profile of
    the AWS configuration. `role` is the database role to become, `tunnel` the near end of a tunnel as HOST:PORT, and
    `iam_auth` whether to authenticate by AWS IAM. Raises PenstockError.
    """
    host = read_full_host(to)
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


def describe_commands(report: S3ImportReport) -> list[str]:
    """Return the lines of a plan that a shell can run: the commands, and other information as comments."""
    commands = list(report.commands) or ["# nothing is missing"]
    notes = [f"# {note}" for note in report.notes]
    routes = [] if report.route is None else [f"# route to S3: {line}" for line in _route_lines(report)]
    return [*commands, *notes, *routes]


def describe_prepared(report: S3ImportReport) -> list[str]:
    """Return lines of text: from where the server may import, by which role and policy, and its route to S3."""
    owner = report.owner
    changed = "" if report.done else ": nothing was missing"
    head = f"{owner.kind} {owner.identifier} may import from {report.place}{changed}"
    rows = [("role", report.role_name), ("policy", report.policy_name)]
    rows += [("note", note) for note in report.notes]
    rows += [("route to S3", line) for line in _route_lines(report)]
    return [head, *line_up(rows, align="<<", indent="  ")]


def describe_undone(report: S3ImportReport) -> list[str]:
    """Return lines of text that say what was removed."""
    owner = report.owner
    if not report.done:
        head = f"penstock made nothing for {owner.kind} {owner.identifier} and {report.place}"
    else:
        head = f"removed what penstock made for {owner.kind} {owner.identifier} and {report.place}"
    return [head, *(f"  {note}" for note in report.notes)]


def report_object(report: S3ImportReport) -> dict[str, object]:
    """Return what --json prints of a report."""
    return {
        report.owner.kind: report.owner.identifier,
        "region": report.owner.region,
        **asdict(report.place),
        "role": report.owner.role_arn(report.role_name),
        "policy": report.owner.policy_arn(report.policy_name),
        "commands": report.commands,
        "done": report.done,
        "notes": report.notes,
        "route": report.route,
    }


def _route_lines(report: S3ImportReport) -> Iterator[str]:
    route = report.route
    if route is None:
        return
    if route.reason is not None:
        yield f"cannot tell: {route.reason}"
        return
    if route.ways:
        yield ", ".join(route.ways)
    if route.lacking:
        yield f"none from {', '.join(route.lacking)}: imports there get no answer; to create one:"
        yield _compose_endpoint(report.owner, route)


def _compose_endpoint(owner: Owner, route: S3Route) -> str:
    words = ["aws", "ec2", "create-vpc-endpoint", "--vpc-id", route.vpc]
    words += ["--service-name", f"com.amazonaws.{owner.region}.s3", "--route-table-ids", *route.tables]
    return shlex.join([*words, "--region", owner.region])


@takes(SERVER)
def prepare_s3_import(
    bucket: Annotated[str, typer.Option("--bucket", metavar="BUCKET", help="Let the server read this bucket.")],
    prefix: Annotated[
        str | None,
        typer.Option(metavar="PREFIX", help="Let it read only keys that begin so (default: all)."),
    ] = None,
    plan: Annotated[bool, typer.Option("--plan", help="Print the equivalent commands, and do nothing else.")] = False,
    undo: Annotated[bool, typer.Option("--undo", help="Remove what this command made for the same place.")] = False,
    profile: Profile = None,
    quiet: Quiet = False,
    as_json: Json = False,
    **options: Any,
) -> None:
    """Let an RDS or Aurora server import files from S3 by aws_s3.

    Creates what is missing, and nothing else: an IAM policy for the bucket and a role for the server alone, the role's
    feature s3Import, and extension aws_s3 in the database. Looks for a private route to S3. What it makes has tags;
    --undo removes that alone. If it was interrupted, run it again, or with --undo. docs/rds.md has the IAM policy.
    """
    place = parse_place(bucket, prefix)
    warn_of_secrets(options.get("to"))
    tell = Messages(is_quiet=quiet).note
    with closing(open_s3_import(tell=tell, profile=profile, **options)) as setup:
        if plan:
            report = setup.plan_undo(place) if undo else setup.plan(place)
        else:
            report = setup.undo(place) if undo else setup.prepare(place)
    if as_json:
        write_result(report_object(report))
    elif plan:
        write_result(describe_commands(report))
    elif not quiet:
        write_result(describe_undone(report) if undo else describe_prepared(report))


app = typer.Typer(
    help="Inspect Amazon RDS and Aurora, and set up imports from S3.",
    no_args_is_help=True,
    add_completion=False,
)
app.command()(show)
app.command()(certificates)
app.command()(prepare_s3_import)
