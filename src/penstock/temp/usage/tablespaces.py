"""Finds where temporary work goes: the tablespaces that settings name, and the devices of these tablespaces."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.host import find_device, measure_disk, read_counters
from penstock.model.temp.placement import parse_setting
from penstock.model.temp.usage import DeviceNow, Route, SettingRow, TablespaceUse

if TYPE_CHECKING:
    from penstock.model.server.device import Device

# The data directory's tablespace, which temporary work uses if no setting names another one.
DATA = "pg_default"


def find_routes(settings: Sequence[SettingRow], tablespaces: Sequence[TablespaceUse], *, session: str) -> list[Route]:
    """Return which tablespaces each role's temporary work uses, and which names PostgreSQL ignores silently."""
    known = {each.name for each in tablespaces}
    routes = [_route("this session", session, known, ())]
    for row in settings:
        owner = "" if row.role is None else f'role "{row.role}"'
        where = "" if row.database is None else f'database "{row.database}"'
        routes.append(_route(" in ".join(filter(None, (owner, where))) or "every role", row.value, known, row.denied))
    return routes


def _route(whose: str, value: str, known: set[str], denied: Sequence[str]) -> Route:
    names = parse_setting(value)
    ignored = [f'"{name}" does not exist' for name in names if name and name not in known]
    ignored += [f'no CREATE on "{name}"' for name in names if name in denied]
    used = [name or DATA for name in names if (not name or name in known) and name not in denied]
    return Route(whose=whose, tablespaces=tuple(used) or (DATA,), ignored=tuple(ignored))


def look_at_devices(tablespaces: Sequence[TablespaceUse]) -> list[DeviceNow]:
    """Return the device of each tablespace of a server on this machine, with its present counters."""
    found = list(_find(tablespaces))
    data = next((device for name, _, device in found if name == DATA), None)
    now = []
    for name, path, device in found:
        disk, counters = measure_disk(path), read_counters(device)
        is_shared = (
            data is not None and name != DATA and (device.name == data.name or bool({*device.disks} & {*data.disks}))
        )
        now.append(
            DeviceNow(
                tablespace=name,
                device=device.name,
                kind="shared with the data" if is_shared else device.kind,
                counters=counters,
                free_bytes=None if disk is None else disk.free_bytes,
            )
        )
    return now


def _find(tablespaces: Sequence[TablespaceUse]) -> Iterator[tuple[str, Path, Device]]:
    for each in tablespaces:
        device = None if each.directory is None else find_device(Path(each.directory))
        if each.directory is not None and device is not None:
            yield each.name, Path(each.directory), device
