"""What a server is and may do, and whether a load would go.

SQL tells, of a local server this host, and of one of Amazon RDS AWS.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.errors import AwsError
from penstock.host import cpu_count, measure_disk, read_machine
from penstock.model.endpoints import is_rds_endpoint
from penstock.model.inspection import HostFacts, Volume
from penstock.server.inspect import inspect_server, inspect_table

if TYPE_CHECKING:
    from datetime import datetime

    from penstock.model.inspection import Inspection
    from penstock.model.rds import RdsDescription
    from penstock.model.table import TableName
    from penstock.server.connection import ConnectionFactory


def examine_server(
    connect: ConnectionFactory, *, ledger_schema: str = "penstock", table: TableName | None = None
) -> Inspection:
    """Return the facts of a server, and of a table to load into; changes nothing, and works behind a pooler.

    Needs no privilege; what the role may not see is None. Raises ServerError.
    """
    with connect.borrow() as connection:
        inspection = inspect_server(connection, pooler=connect.pooler, ledger_schema=ledger_schema)
        if table is not None:
            inspected = inspect_table(connection, table, user=inspection.server.user)
            inspection = replace(inspection, table=inspected)
    return replace(inspection, host=_examine_host(inspection)) if inspection.server.is_local else inspection


def ask_aws(connect: ConnectionFactory, *, now: datetime) -> RdsDescription | AwsError | None:
    """Return what AWS says of the server that is reached, or why it does not; None for hosts that are not RDS's.

    Rights: docs/rds.md. Raises ServerError where the server cannot be reached.
    """
    with connect.borrow() as connection:
        host = connection.info.host
    if not is_rds_endpoint(host):
        return None
    from penstock.aws.rds import describe_instance  # noqa: PLC0415 (botocore is paid for by who asks AWS)

    try:
        return describe_instance(host, now=now)
    except AwsError as error:
        return error


def _examine_host(inspection: Inspection) -> HostFacts:
    volumes = []
    for holds, path in find_places(inspection):
        disk = measure_disk(path)
        if disk is not None:
            volumes.append(
                Volume(
                    holds=holds,
                    path=disk.path,
                    device=disk.device,
                    size_bytes=disk.size_bytes,
                    free_bytes=disk.free_bytes,
                )
            )
    return HostFacts(cpu_count=cpu_count(), memory_bytes=read_machine().memory_bytes, volumes=tuple(volumes))


def find_places(inspection: Inspection) -> list[tuple[str, Path]]:
    """Return where a server keeps what, as far as the role could read it."""
    places = []
    if (data := inspection.value("data_directory")) is not None:
        places += [("data directory", Path(data)), ("WAL", Path(data) / "pg_wal")]
    places += [
        (f'tablespace "{space.name}"', Path(space.location))
        for space in inspection.tablespaces or ()
        # Those in the data directory have no location; allow_in_place_tablespaces makes relative ones.
        if Path(space.location).is_absolute()
    ]
    return places
