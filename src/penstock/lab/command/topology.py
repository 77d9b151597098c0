"""`penstock lab up`, `down` and the other commands for topologies. Package lab does the work."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from penstock.cli.options import Json  # noqa: TC001 (typer reads annotations)
from penstock.cli.output import NOT_RUNNING, write_result
from penstock.core.errors import UsageError
from penstock.core.units import format_bytes
from penstock.core.values.options import parse_duration
from penstock.core.words import line_up

if TYPE_CHECKING:
    from penstock.lab.topology.lab import Lab, LabStatus

_DEFAULT_NAME = "lab"

Name = Annotated[str, typer.Option("--name", help="Use the lab of this name; several can run at once.")]
NameArgument = Annotated[str, typer.Argument(metavar="[NAME]", help="Name of the lab, as given to lab up --name.")]

ShapeArgument = Annotated[
    Literal["single", "multi-az", "cluster", "quorum"],
    typer.Argument(
        help="single: one server. multi-az: one server on a volume of two copies. cluster: a primary and two "
        "synchronous standbys, one of which a commit waits for. quorum: a primary and six receivers of its WAL in "
        "three zones, four of which a commit waits for."
    ),
]
VolumeOption = Annotated[
    str | None,
    typer.Option(
        "--volume",
        metavar="VOLUME",
        help="Put each server's data on a volume with the limits of gp2:SIZE[:spent], gp3:SIZE:IOPS:MiBps or "
        "io1:SIZE:IOPS, or on an unlimited one (Linux, root). multi-az has one always.",
    ),
]
ZoneLatency = Annotated[
    str,
    typer.Option("--zone-latency", help="Delay traffic to each zone by this time, such as 1ms, each way."),
]
ParametersOption = Annotated[
    Literal["postgres", "rds", "embedded"],
    typer.Option(
        "--parameters",
        help="Settings of the servers: PostgreSQL's own defaults, those of an RDS instance with this memory, or "
        "those of the embedded server.",
    ),
]


def up(
    shape: ShapeArgument,
    name: Name = _DEFAULT_NAME,
    zone_latency: ZoneLatency = "0ms",
    parameters: ParametersOption = "postgres",
    volume: VolumeOption = None,
    local_storage: Annotated[
        str | None,
        typer.Option("--local-storage", metavar="SIZE", help="Add a device without limits for temporary data (root)."),
    ] = None,
    memory: Annotated[
        str | None,
        typer.Option("--memory", metavar="SIZE", help="Limit the servers' memory, page cache included (root)."),
    ] = None,
    has_s3: Annotated[
        bool,
        typer.Option("--s3", help="Start an S3 beside it (moto), and let its servers CREATE EXTENSION aws_s3."),
    ] = False,
    pg_bin: Annotated[
        Path | None,
        typer.Option("--pg-bin", metavar="DIR", help="Use the PostgreSQL with its programs in this folder."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Bring a topology up on this machine and print how to connect to its primary.

    It runs until penstock lab down. If the lab is up already, it is printed, and its missing parts are started.

    Exit codes: 0 it is up, 2 no PostgreSQL in DIR, 8 it could not be brought up, and was removed.
    """
    from penstock.core.volumes import parse_size
    from penstock.lab.installations import default_installation, installation_at
    from penstock.lab.topology.lab import Lab
    from penstock.lab.topology.shapes import zones_of

    latency_s = parse_duration(zone_latency, option="--zone-latency")
    if latency_s and not zones_of(shape):
        raise UsageError(
            f"{shape} has one server, and has no zones to delay", hint="Use --zone-latency with cluster or quorum."
        )
    installation = default_installation() if pg_bin is None else installation_at(pg_bin)
    lab = Lab.named(name)
    found = lab.up(
        shape,
        installation,
        parameters=parameters,
        zone_latency_s=latency_s,
        volume=volume,
        local_storage_bytes=parse_size(local_storage, option="--local-storage") if local_storage else None,
        memory_bytes=parse_size(memory, option="--memory") if memory else None,
        has_s3=has_s3,
    )
    _print(found, as_json=as_json)


def down(
    name: NameArgument = _DEFAULT_NAME,
    takes_all: Annotated[bool, typer.Option("--all", help="Take down every lab, also one partly up.")] = False,
) -> None:
    """Take a lab down: end its processes, and remove its sockets and data.

    Exit codes: 0 it is down (or was), 8 it could not be taken down.
    """
    from penstock.lab.topology.lab import Lab, list_labs

    labs = list_labs() if takes_all else [Lab.named(name)]
    taken = [lab.files.name for lab in labs if lab.down()]
    if taken:
        write_result(f"down: {', '.join(taken)}")
    else:
        write_result("no lab was up" if takes_all else f'lab "{name}" was not up')


def status(name: NameArgument = _DEFAULT_NAME, as_json: Json = False) -> None:
    """Show which parts of a lab run, which receive WAL, and whether a commit would be acknowledged.

    Exit codes: 0 it runs, 2 no such lab, 3 its primary is not running.
    """
    found = _lab(name).status()
    _print(found, as_json=as_json)
    if found.conninfo is None:
        raise typer.Exit(NOT_RUNNING)


def list_all(as_json: Json = False) -> None:
    """List the labs of this machine that are up."""
    from penstock.lab.topology.lab import list_labs

    found = [(lab.files.name, lab.files.read()) for lab in list_labs()]
    rows = [
        {"name": name, "shape": state and state.shape, "stage": state.stage if state else "starting"}
        for name, state in found
    ]
    if as_json:
        write_result({"labs": rows})
    elif rows:
        write_result(line_up([[str(cell or "-") for cell in row.values()] for row in rows], align="<<<"))
    else:
        write_result("no lab is up")


def kill(
    target: Annotated[str, typer.Argument(metavar="ZONE", help="zone-a, zone-b or zone-c, or the name of one member.")],
    name: NameArgument = _DEFAULT_NAME,
    as_json: Json = False,
) -> None:
    """Lose a zone at once, and keep it down until penstock lab heal.

    Exit codes: 0 it is down, 2 no such lab or zone, 8 the zone has the primary.
    """
    _print(_lab(name).kill(target), as_json=as_json)


def heal(name: NameArgument = _DEFAULT_NAME, as_json: Json = False) -> None:
    """Start the lost members again, and wait until they have caught up.

    Exit codes: 0 everything runs, 2 no such lab, 8 a member did not catch up.
    """
    _print(_lab(name).heal(), as_json=as_json)


def failover(name: NameArgument = _DEFAULT_NAME, as_json: Json = False) -> None:
    """Lose a cluster's primary as by a crash, promote a standby, and print how to connect to it.

    The lost server comes back as a standby of the new primary.

    Exit codes: 0 a standby was promoted, 2 no such lab, 8 it has no standby, or one is down.
    """
    _print(_lab(name).failover(), as_json=as_json)


def _lab(name: str) -> Lab:
    from penstock.lab.topology.lab import Lab

    return Lab.named(name)


def _print(found: LabStatus, *, as_json: bool) -> None:
    write_result(_as_json(found) if as_json else _as_text(found))


def _as_text(found: LabStatus) -> list[str]:
    from penstock.lab.topology.s3 import BUCKET

    latency = f", {found.zone_latency_s * 1000:g} ms to each zone" if found.zone_latency_s else ""
    lines = [
        f'lab "{found.name}": {found.shape}, PostgreSQL {found.major}, {found.parameters} settings{latency}'
        + ("" if found.stage == "up" else f" (interrupted while {found.stage})"),
        f"connect with: {found.conninfo}" if found.conninfo else "the primary is not running",
        *line_up(
            [
                (
                    member.name,
                    member.kind,
                    "" if member.zone is None else f"zone-{member.zone}",
                    member.state,
                    member.sync_state or "",
                    "" if not member.lag_bytes else f"{format_bytes(member.lag_bytes)} behind",
                )
                for member in found.members
            ],
            align="<<<<<<",
            indent="  ",
        ),
    ]
    given = {
        "volume": found.volume,
        "local storage": found.local_storage,
        "memory": None if found.memory_bytes is None else format_bytes(found.memory_bytes),
    }
    lines += [f"{name}: {value}" for name, value in given.items() if value is not None]
    if found.s3 is not None:
        variables = " ".join(f"{name}={value}" for name, value in found.s3.items())
        lines.append(f"S3 with bucket {BUCKET}: export {variables}")
    if found.needed:
        lines.append(_describe_commits(found))
    return lines


def _describe_commits(found: LabStatus) -> str:
    others = len(found.members) - 1
    missing = f"; missing: {', '.join(found.missing)}" if found.missing else ""
    verdict = "are acknowledged" if found.can_commit else "wait"
    return f"commits {verdict}: {found.needed} of {others} needed, {others - len(found.missing)} connected{missing}"


def _as_json(found: LabStatus) -> dict[str, object]:
    return {**asdict(found), "can_commit": found.can_commit}
