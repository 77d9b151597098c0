"""The tables of an RDS snapshot export: which are found, and which exports are refused as not whole."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from penstock.core.errors import PenstockError, SourceError, UsageError
from penstock.loading.command.export import Export, find_tables, parse_info
from support.exports import make_export

if TYPE_CHECKING:
    from collections.abc import Mapping

_ROWS = pa.table({"id": [1]})


def _read(files: Mapping[str, bytes], *, root: str = "s3://b/nightly") -> Export:
    infos = {name: json.loads(data) for name, data in files.items() if name.endswith(".json")}
    return Export(
        root=root,
        status=next(info["status"] for name, info in infos.items() if name.startswith("export_info_")),
        entries=tuple(entry for info in infos.values() for entry in info.get("perTableStatus", [])),
        names=tuple(sorted(files)),
    )


def _without(files: Mapping[str, bytes], part: str) -> dict[str, bytes]:
    left = {name: data for name, data in files.items() if part not in name}
    assert len(left) < len(files)
    return left


def _names(files: Mapping[str, bytes], within: str = "") -> list[str]:
    return [str(each.table) for each in find_tables(_read(files), within=within)[0]]


def test_all_tables_of_a_database_are_found_by_schema_and_name() -> None:
    """Two of the same name in two schemas are two tables; a name may have dots behind the schema's."""
    files = make_export({"public.orders": _ROWS, "old.orders": [_ROWS, _ROWS], "public.a.b": _ROWS})
    tables, notices = find_tables(_read(files))
    assert [(each.table.schema, each.table.name, each.folder) for each in tables] == [
        ("public", "orders", "shop/public.orders"),
        ("old", "orders", "shop/old.orders"),
        ("public", "a.b", "shop/public.a.b"),
    ]
    assert notices == ()


def test_folder_of_a_database_or_a_table_is_that_part_of_the_export() -> None:
    """And no other whose name begins in the same way."""
    files = make_export({"public.orders": _ROWS, "public.orders_2": _ROWS}) | make_export(
        {"public.orders": _ROWS}, database="shop2", export_id="x"
    )
    assert _names(files, "shop") == ["public.orders", "public.orders_2"]
    assert _names(files, "shop/public.orders") == ["public.orders"]
    with pytest.raises(SourceError, match=r'export "s3://b/nightly/shop/public.lost" has no complete table'):
        find_tables(_read(files), within="shop/public.lost")


def test_export_of_several_databases_is_loaded_one_by_one() -> None:
    """A load is into one database; databases without tables do not count."""
    files = make_export({"public.t": _ROWS}) | make_export({}, database="postgres", export_id="x")
    assert _names(files) == ["public.t"]
    files |= make_export({"public.t": _ROWS}, database="crm", export_id="y")
    with pytest.raises(UsageError) as caught:
        find_tables(_read(files))
    assert (caught.value.detail, caught.value.hint) == (
        "s3://b/nightly has: shop, crm.",
        "Load one at a time: s3://b/nightly/shop/.",
    )


def test_names_are_found_in_the_folders_that_aws_writes_for_them() -> None:
    """Of which blanks and quotes are underscores; the table keeps its name."""
    files = {name.replace(" ", "_"): data for name, data in make_export({"public.my table": _ROWS}).items()}
    ((found,), _) = find_tables(_read(files))
    assert (found.table.name, found.folder) == ("my table", "shop/public.my_table")
    twice = make_export({"public.my table": _ROWS, "public.my_table": _ROWS})
    with pytest.raises(SourceError, match=r'"shop.public.my table" and "shop.public.my_table" have the same folder'):
        find_tables(_read({name.replace(" ", "_"): data for name, data in twice.items()}))


def test_failed_and_empty_tables_are_named_and_the_others_found() -> None:
    """With what the export says of each; a warning of a table or database that is whole is passed on."""
    entries = [
        {"target": "shop.public.big", "status": "FAILED", "failureCause": "row over 2 GB"},
        {"target": "shop.public.odd", "status": "COMPLETE", "warningMessage": "characters were replaced"},
        {"target": "empty", "warningMessage": "database has no tables"},
    ]
    tables = {"public.t": _ROWS, "public.none": [], "public.odd": _ROWS}
    found, notices = find_tables(_read(make_export(tables, entries=entries)))
    assert [str(each.table) for each in found] == ["public.t", "public.odd"]
    assert {notice.message for notice in notices} == {
        '"shop.public.big" is not in the export: status FAILED: row over 2 GB',
        '"shop.public.odd" reports characters were replaced',
        '"empty" reports database has no tables',
        'table "public.none" has no rows in the export and is left as it is',
    }


def test_export_in_which_the_wanted_table_failed_is_an_error() -> None:
    """With the reason: nothing could be loaded."""
    entries = [{"target": "shop.public.big", "status": "FAILED"}]
    with pytest.raises(SourceError) as caught:
        find_tables(_read(make_export({"public.t": _ROWS}, entries=entries)), within="shop/public.big")
    assert caught.value.detail == '"shop.public.big" is not in the export: status FAILED'


@pytest.mark.parametrize("status", ["IN_PROGRESS", "CANCELED", "FAILED", "None"])
def test_export_that_has_not_ended_well_is_refused(status: str) -> None:
    """By its own status, whatever its tables have."""
    with pytest.raises(SourceError, match="is not complete") as caught:
        find_tables(_read(make_export({"public.t": _ROWS}, status=status)))
    assert caught.value.detail == f"Its status is {status}."


@pytest.mark.parametrize(
    ("missing", "message", "detail"),
    [
        ("t/2/_SUCCESS", 'table "public.t" is not whole', '"s3://b/nightly/shop/public.t/2" has no file _SUCCESS.'),
        ("public.t/", 'table "public.t" is not whole', '"s3://b/nightly/shop/public.t" has no file _SUCCESS.'),
        ("from_3_to_4", 'does not list the table of folder "shop/public.u"', None),
    ],
)
def test_copy_that_lacks_files_is_refused(missing: str, message: str, detail: str | None) -> None:
    """A mark, a table's folder, or a part of the list of tables is missing."""
    files = make_export({"public.t": [_ROWS, _ROWS], "public.u": _ROWS})
    find_tables(_read(files))
    with pytest.raises(SourceError, match=message) as caught:
        find_tables(_read(_without(files, missing)))
    assert detail is None or caught.value.detail == detail


def test_export_of_another_engine_is_refused() -> None:
    """Whose tables have no schema: MySQL and MariaDB."""
    files = make_export({"shop.t": _ROWS}, entries=[{"target": "shop.t", "status": "COMPLETE"}])
    with pytest.raises(SourceError, match="is not of PostgreSQL"):
        find_tables(_read(files))


def test_older_exports_without_folders_of_batches_are_read() -> None:
    """Their files and mark lie in the table's folder."""
    files = {name.replace("/1/", "/"): data for name, data in make_export({"public.t": _ROWS}).items()}
    assert _names(files) == ["public.t"]
    with pytest.raises(SourceError, match="not whole"):
        find_tables(_read(_without(files, "_SUCCESS")))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff",
        b"[]",
        b'{"perTableStatus": [1]}',
        b'{"perTableStatus": [{"target": 1}]}',
        b'{"perTableStatus": {}}',
    ],
)
def test_files_that_describe_no_export_are_errors(data: Any) -> None:
    """That name the file."""
    with pytest.raises(PenstockError, match=r'"s3://b/x.json" (is not JSON|does not describe a snapshot export)'):
        parse_info(data, uri="s3://b/x.json")
