"""How an object's records are read, as JSON, which the ledger keeps with the rejected records. Pure."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from typing import Any

from penstock.copyformat import make_form_encoder
from penstock.loading.rejects.pieces import Origin
from penstock.model.jsontext import to_json
from penstock.model.load.reject import RecordForm
from penstock.model.server.table import ColumnMap, TableName
from penstock.model.source.dialect import Dialect


def form_to_json(form: RecordForm) -> str:
    """Return a form as JSON that `form_from_json` reads."""
    fields = asdict(form)
    # The header has bytes of any encoding, so write it as hexadecimal digits, which every database can store.
    del fields["header"]
    fields["header_hex"] = None if form.header is None else form.header.hex()
    return to_json(fields)


def form_from_json(text: str) -> RecordForm:
    """Return the form that `form_to_json` wrote."""
    fields = json.loads(text)
    return RecordForm(
        dialect=_read_dialect(fields["dialect"]),
        column_map=_read_column_map(fields["column_map"]),
        table=TableName(**fields["table"]),
        encoding=fields["encoding"],
        header=None if fields["header_hex"] is None else bytes.fromhex(fields["header_hex"]),
        allows_suppressed_rows=fields["allows_suppressed_rows"],
        working_names=tuple((working, name) for working, name in fields["working_names"]),
        bom=fields["bom"],
    )


def make_origin(form: RecordForm, *, number: int, uri: str, server_major: int, has_positions: bool = False) -> Origin:
    """Return what is needed to send records of an object without opening the object.

    With `has_positions`, they are sent to a staging table.
    """
    encoder = make_form_encoder(form, positions=number if has_positions else None)
    return Origin(number=number, uri=uri, form=form, encoder=encoder, server_major=server_major)


def _read_dialect(fields: dict[str, Any]) -> Dialect:
    return replace(Dialect(**fields), nulls=tuple(fields["nulls"]), force_null=tuple(fields["force_null"]))


def _read_column_map(fields: dict[str, Any]) -> ColumnMap:
    keep = fields["keep"]
    return ColumnMap(
        columns=tuple(fields["columns"]),
        keep=None if keep is None else tuple(keep),
        constants=tuple(fields["constants"]),
        field_count=fields["field_count"],
        ends_empty=fields.get("ends_empty", False),
        names=None if (names := fields.get("names")) is None else tuple((name, index) for name, index in names),
        takes_json=tuple(fields.get("takes_json", ())),
    )
