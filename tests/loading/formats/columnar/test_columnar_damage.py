"""Columnar files that are damaged or encrypted: an error that says so, and never the end of the process."""

from __future__ import annotations

import base64
import struct
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.parquet.encryption as pe
import pytest

from loading.formats.columnar import flips
from penstock.core.errors import DataError, SourceError
from penstock.core.values.job import LoadRules
from support.loads import Loads, target
from support.pairs import pairs
from support.parts import rest

if TYPE_CHECKING:
    from collections.abc import Callable

_TEXTS = [f"text{number:04d}" for number in range(500)]


@pytest.mark.part("rest")
@pytest.mark.parametrize("file_format", ["parquet", rest("arrow")])
def test_damaged_bytes_never_end_the_process(file_format: str) -> None:
    """Each of 400 files is read to its end, or refused."""
    argv = [sys.executable, flips.__file__, file_format, "0", "400"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, f"file {done.stdout.split()[-1]}: {done.stderr[-2000:]}"


@pytest.mark.part("rest")
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("file_format", ["parquet", "arrow"])
def test_many_damaged_bytes_never_end_the_process(file_format: str) -> None:
    """As above, 20,000."""
    for first in range(400, 20_400, 2_000):
        argv = [sys.executable, flips.__file__, file_format, str(first), str(first + 2_000)]
        done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=600)
        assert done.returncode == 0, f"file {done.stdout.split()[-1]}: {done.stderr[-2000:]}"


@pairs(
    offset={"negative": -8, "near": 1, "far": 3_990, "over": 4_008, "huge": 2**31 - 1},
    kind=[pa.string(), pa.large_binary()],
    on_error=["stop", "reject"],
)
def test_damaged_offset_of_an_arrow_file_is_an_error_of_the_file(
    loads: Loads, write_arrow: Callable[..., Path], offset: int, kind: pa.DataType, on_error: Any
) -> None:
    """No row is loaded: the values beside it are other ones, too."""
    path = write_arrow({"id": range(500), "s": pa.array(_TEXTS).cast(kind)})
    code = "<501i" if kind == pa.string() else "<501q"
    offsets = [8 * number for number in range(501)]
    damaged = [*offsets[:250], offset, *offsets[251:]]
    data = path.read_bytes()
    assert data.count(struct.pack(code, *offsets)) == 1
    path.write_bytes(data.replace(struct.pack(code, *offsets), struct.pack(code, *damaged)))
    with pytest.raises(SourceError) as caught:
        loads.run(target(path, create=True), rules=LoadRules(on_error=on_error, retry_for=0.0))
    assert 'column "s"' in (caught.value.detail or "")
    assert not loads.has_table("t") or loads.count() == 0


def test_damaged_page_is_an_error_with_its_row_group_and_column(
    loads: Loads, write_parquet: Callable[..., Path]
) -> None:
    """Its checksum does not hold."""
    path = write_parquet({"id": range(500), "s": _TEXTS}, row_group_size=200, compression="none", use_dictionary=False)
    data = path.read_bytes()
    path.write_bytes(data.replace(b"text0250", b"text0251"))
    with pytest.raises(SourceError) as caught:
        loads.run(target(path, create=True))
    assert 'row group 2, column "s": ' in (caught.value.detail or "")


def test_text_that_is_not_utf8_is_still_an_error_of_its_row(loads: Loads, write_arrow: Callable[..., Path]) -> None:
    """It is no damage of the file, and is rejected."""
    offsets = pa.array([0, 1, 2, 3], pa.int32()).buffers()[1]
    bad = pa.StringArray.from_buffers(3, offsets, pa.py_buffer(b"1\xff3"))
    path = write_arrow({"id": [1, 2, 3], "v": bad})
    error = loads.refuse(target(path, create=True))
    assert isinstance(error, DataError)
    assert error.location is not None
    assert error.location.line == 2
    assert loads.run(target(path, create=True), rules=LoadRules(on_error="reject", retry_for=0.0)).rejected == 1


class _Keys(pe.KmsClient):  # type: ignore[misc] # pyarrow has no stubs
    """Wraps keys without a secret."""

    def __init__(self, _: Any) -> None:
        super().__init__()

    def wrap_key(self, key_bytes: bytes, _: str) -> bytes:
        return base64.b64encode(key_bytes)

    def unwrap_key(self, wrapped_key: bytes, _: str) -> bytes:
        return base64.b64decode(wrapped_key)


@pytest.mark.parametrize(
    "how",
    [
        {"column_keys": {"k": ["id"]}, "plaintext_footer": True},
        {"column_keys": {"k": ["id"]}, "plaintext_footer": False},
        {"uniform_encryption": True, "plaintext_footer": True},
        {"uniform_encryption": True, "plaintext_footer": False},
    ],
    ids=["column", "column and footer", "all columns", "all"],
)
def test_encrypted_parquet_file_is_refused_by_what_it_is(loads: Loads, tmp_path: Path, how: dict[str, Any]) -> None:
    """Also if its footer is not encrypted."""
    table, path = pa.table({"id": [1], "b": [2]}), tmp_path / "f.parquet"
    factory = pe.CryptoFactory(_Keys)
    properties = factory.file_encryption_properties(
        pe.KmsConnectionConfig(), pe.EncryptionConfiguration(footer_key="f", **how)
    )
    with pq.ParquetWriter(path, table.schema, encryption_properties=properties) as writer:
        writer.write_table(table)
    error = loads.refuse(target(path, create=True))
    assert isinstance(error, SourceError)
    assert "an encrypted Parquet file" in error.message
    assert loads.refuse(target(path, create=True, skip=["id"])).message == error.message


@pytest.mark.parametrize("footer", [b"", b"\x15", b"\xff" * 40, b"\x19\x1c" * 20])
def test_footer_that_is_none_is_an_error_of_the_file(loads: Loads, tmp_path: Path, footer: bytes) -> None:
    """Whatever its length says."""
    for length in (len(footer), 0, 2**32 - 1):
        (tmp_path / "f").write_bytes(b"PAR1" + bytes(20) + footer + length.to_bytes(4, "little") + b"PAR1")
        assert isinstance(loads.refuse(target(tmp_path / "f", create=True)), SourceError)


@pytest.mark.part("rest")
def test_long_footer_is_read_as_a_whole(loads: Loads, write_parquet: Callable[..., Path]) -> None:
    """It does not fit into the part of the file that is read first."""
    path = write_parquet({"id": range(2_000)}, row_group_size=1)
    assert int.from_bytes(path.read_bytes()[-8:-4], "little") > 100_000
    assert loads.run(target(path, create=True)).rows == 2_000


@pytest.mark.part("rest")
def test_dictionary_may_stand_for_more_than_fits_in_one_block(loads: Loads, write_arrow: Callable[..., Path]) -> None:
    """300 rows of 8 MB, which are 4 kB of indices and 8 MB of a text."""
    text = pa.DictionaryArray.from_arrays(pa.array([0] * 300, pa.int8()), pa.array(["x" * 8_000_000]))
    path = write_arrow({"v": text})
    loads.execute(
        "CREATE TABLE t (v text); CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
        " NEW.v := length(NEW.v); RETURN NEW; END $$;"
        " CREATE TRIGGER b BEFORE INSERT ON t FOR EACH ROW EXECUTE FUNCTION f()"
    )
    assert loads.run(target(path), sessions=1).rows == 300
    assert loads.execute("SELECT DISTINCT v FROM t") == [("8000000",)]
