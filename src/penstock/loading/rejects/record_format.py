"""How an object's records are read, as JSON, which the ledger keeps with the rejected records. Pure."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import asdict
from typing import Any

from penstock.copyformat import make_form_encoder
from penstock.loading.rejects.pieces import Origin
from penstock.model.jsontext import to_json
from penstock.model.load.reject import RecordForm
from penstock.model.recorded import make_recorded, reading_record, refuse_unknown
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
    """Return the form that `form_to_json` wrote.

    Raises TargetError if another version of penstock wrote it, and this one does not know all of it.
    """
    fields = json.loads(text)
    with reading_record("how rejected records are read"):
        header = fields.pop("header_hex")
        read = {
            "dialect": make_recorded(Dialect, fields["dialect"], part="field"),
            "column_map": _read_column_map(fields["column_map"]),
            "table": make_recorded(TableName, fields["table"], part="field"),
            "header": None if header is None else bytes.fromhex(header),
            "working_names": tuple((working, name) for working, name in fields["working_names"]),
        }
        return make_recorded(RecordForm, fields | read, part="field")


def make_origin(form: RecordForm, *, number: int, uri: str, server_major: int, has_positions: bool = False) -> Origin:
    """Return what is needed to send records of an object without opening the object.

    With `has_positions`, they are sent to a staging table.
    """
    encoder = make_form_encoder(form, positions=number if has_positions else None)
    return Origin(number=number, uri=uri, form=form, encoder=encoder, server_major=server_major)


def _read_column_map(fields: dict[str, Any]) -> ColumnMap:
    refuse_unknown(fields, [each.name for each in dataclasses.fields(ColumnMap)], part="field")
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
