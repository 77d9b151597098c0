"""What decides about a place for temporary work, without a server."""

from __future__ import annotations

from dataclasses import replace
from pathlib import PurePosixPath

import pytest

from penstock.core.catalogue.settings import SettingsFacts, SettingsRights
from penstock.core.errors import TargetError, UsageError
from penstock.core.values.inspection import Flavour, Manager
from penstock.core.values.temp_place import TABLESPACE, Placement, Scope, parse_scope, parse_setting
from penstock.temp.place.decide import list_remarks, refuse_directory, refuse_server
from penstock.temp.place.directory import DirectoryFacts, PartFacts
from penstock.temp.place.kind import PlaceRow, RemovalFacts, TablespaceRow, plan_removal

_PATH = PurePosixPath("/mnt/nvme/temp")
_DIRECTORY = DirectoryFacts(is_directory=True, server_uid=101, owner_uid=101, mode=0o700, is_empty=True)
_PLACE = PlaceRow(
    data_directory="/var/lib/postgresql/data", version_folder="PG_18_202506291", temp_file_limit="-1", receivers=[]
)
_RIGHTS = SettingsRights(
    user="postgres",
    is_superuser=True,
    reads_settings=True,
    reads_files=True,
    may_reload=True,
    may_record=True,
    allows_alter_system=True,
)
_SERVER = SettingsFacts(
    version_num=180000,
    is_in_recovery=False,
    flavour=Flavour(kind="postgresql", name="PostgreSQL"),
    managers=(),
    rights=_RIGHTS,
    settings=(),
)
_PATRONI = Manager(name="Patroni", told_by="cluster_name", change="patronictl edit-config")


def _part(path: str, *, is_link: bool = False, owner_uid: int = 0, mode: int = 0o755) -> PartFacts:
    return PartFacts(path=path, is_link=is_link, owner_uid=owner_uid, mode=mode)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"is_in_recovery": True}, "on a standby"),
        ({"flavour": Flavour(kind="rds", name="Amazon RDS")}, "on Amazon RDS"),
        ({"managers": (_PATRONI,)}, "that Patroni manages"),
        ({"rights": replace(_RIGHTS, is_superuser=False)}, "only a superuser"),
    ],
)
def test_server_is_refused_with_the_reason(change: dict[str, object], reason: str) -> None:
    """And what to do instead."""
    refuse_server(_SERVER)
    with pytest.raises(TargetError, match=reason) as caught:
        refuse_server(replace(_SERVER, **change))  # type: ignore[arg-type]
    assert caught.value.hint


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"is_directory": False}, "does not exist"),
        ({"owner_uid": 0}, "not owned by the server's account"),
        ({"mode": 0o755}, "open to other users"),
        ({"mode": 0o770}, "open to other users"),
        ({"is_empty": False}, "not empty"),
        ({"is_inside_data": True}, "inside the data directory"),
        ({"parts": (_part("/mnt", owner_uid=7),)}, "replaced by other users"),
        ({"parts": (_part("/mnt", mode=0o1777),)}, "replaced by other users"),
        ({"parts": (_part("/mnt", is_link=True),)}, "replaced by other users"),
        ({"shared": ("nvme0n1",)}, "on the disk that has the data"),
    ],
)
def test_directory_is_refused_with_the_reason(change: dict[str, object], reason: str) -> None:
    """One that group members of the server's account may read is initdb's own choice."""
    parts = (_part("/"), _part("/mnt", owner_uid=101))
    refuse_directory(_PATH, _PLACE, replace(_DIRECTORY, mode=0o750, parts=parts), allows_same_device=False)
    found = replace(_DIRECTORY, **change)  # type: ignore[arg-type]
    with pytest.raises(TargetError, match=reason):
        refuse_directory(_PATH, _PLACE, found, allows_same_device=False)


def test_hints_quote_the_path_and_a_quote_in_it_is_refused() -> None:
    """What is shown can be run as it is; PostgreSQL would take no such location."""
    with pytest.raises(TargetError) as caught:
        refuse_directory(PurePosixPath("/my disk"), _PLACE, replace(_DIRECTORY, mode=0o755), allows_same_device=False)
    assert caught.value.hint == "Run chmod 700 '/my disk'"
    with pytest.raises(TargetError, match="has a single quote"):
        refuse_directory(PurePosixPath("/my'disk"), _PLACE, None, allows_same_device=False)


def test_data_directory_is_known_without_its_machine() -> None:
    """By its path alone; the rest is the server's to refuse."""
    refuse_directory(_PATH, _PLACE, None, allows_same_device=False)
    with pytest.raises(TargetError, match="inside the data directory"):
        refuse_directory(PurePosixPath("/var/lib/postgresql/data/x"), _PLACE, None, allows_same_device=False)


def test_remarks_name_standbys_and_a_limit() -> None:
    """A limit of nothing would stop all temporary files."""
    place = replace(_PLACE, receivers=["az_b", ""])
    text = "\n".join(list_remarks(_PATH, place, replace(_DIRECTORY, free_bytes=8 * 1024**3)))
    assert "az_b, (no name)" in text
    assert "temp_file_limit = '2048MB'" in text
    tiny = replace(_DIRECTORY, free_bytes=1)
    assert "'1MB'" in "\n".join(list_remarks(_PATH, place, tiny))
    assert "temp_file_limit" not in "\n".join(list_remarks(_PATH, replace(place, temp_file_limit="1GB"), tiny))
    assert "not checked" in "\n".join(list_remarks(_PATH, place, None))


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("", ()),
        ('""', ()),
        ("A,b", ("a", "b")),
        ('"A ""x"", y" , b', ('A "x", y', "b")),
    ],
)
def test_setting_is_read_as_postgresql_reads_it(text: str, names: tuple[str, ...]) -> None:
    """Names that are not in quotes in lower case."""
    assert parse_setting(text) == names


@pytest.mark.parametrize("text", ['"a', "a b", "a,", ",a", 'a"b"'])
def test_setting_that_is_no_list_is_refused(text: str) -> None:
    """It could not be restored."""
    with pytest.raises(TargetError, match="not a list of names"):
        parse_setting(text)


@pytest.mark.parametrize("text", ["", "role", "role:", "table:x", "server:x"])
def test_scope_is_server_database_or_role(text: str) -> None:
    """Names are folded as SQL folds them."""
    assert parse_scope('role:"My Role"').name == "My Role"
    assert parse_scope("database:Shop").name == "shop"
    with pytest.raises(UsageError):
        parse_scope(text)


@pytest.mark.parametrize(
    ("change", "statements", "left"),
    [
        ({}, 3, 0),
        ({"tablespace": None}, 2, 0),
        ({"tablespace": None, "elsewhere": "/other"}, 2, 1),
        ({"tablespace": None, "renamed": "fast"}, 2, 1),
        ({"setting": ("mine",)}, 2, 1),
        ({"setting": None}, 2, 0),
    ],
)
def test_removal_undoes_what_is_still_as_it_was_placed(change: dict[str, object], statements: int, left: int) -> None:
    """What somebody else has changed since is named, and left."""
    placed = Placement(location="/fast", scope=Scope(kind="server"), granted=(), prior=None)
    tablespace = TablespaceRow(oid=1, location="/fast", excluded=[])
    sound = RemovalFacts(tablespace=tablespace, elsewhere=None, renamed=None, setting=(TABLESPACE,), occupants=[])
    planned = plan_removal(placed, replace(sound, **change))  # type: ignore[arg-type]
    assert (len(planned.statements), len(planned.left)) == (statements, left)
