"""Loads that the server imported from S3 itself are verified: their objects are read here, for the first time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from loading.imports.jobs import SERVER, job, put_zipped
from support.proofs import said, verify

if TYPE_CHECKING:
    from support.loads import Loads
    from support.s3_lab import S3Lab

pytestmark = pytest.mark.part("rest")

_TEXT = b'a,b\n1,"x, ""y"""\n2,\n3,back\\slash\n4,""\n'


@pytest.mark.parametrize("values", [False, True])
@pytest.mark.parametrize("mode", ["append", "truncate"])
def test_imported_objects_are_verified(s3: S3Lab, loads: Loads, mode: str, values: bool) -> None:
    """Plain and gzip; what penstock reads of them is what the server has read; damage is found with its line."""
    s3.put("d/one.csv", _TEXT)
    put_zipped(s3, "d/two.csv", b"a,b\n5,x\n6,y\n")
    loads.execute("INSERT INTO t VALUES (-1, 'before')")
    load_id = str(loads.run(job(mode=mode), rules=SERVER).load_id)
    outcome = verify(loads, load_id, values=values)
    assert (outcome.problems, outcome.tables[0].records) == ((), 6)
    assert outcome.tables[0].compared == (6 if values else None)
    loads.execute("DELETE FROM t WHERE a IN (-1, 3)")
    lines = [("is not in the table", 4)] if values else []
    assert said(verify(loads, load_id, values=values)) == [("has 5 rows, and the load has stored 6", None), *lines]
    s3.put("d/one.csv", _TEXT.replace(b"1", b"9"))
    assert ("has changed since it was loaded", None) in said(verify(loads, load_id, values=values))
