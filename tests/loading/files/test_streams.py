"""Local sources as streams: sampled, opened, pinned, transcoded; pipes read once."""

from __future__ import annotations

import bz2
import errno
import gzip
import io
import os
import subprocess
import sys
import tarfile
import tempfile
import threading
from typing import TYPE_CHECKING

import pytest

from penstock.core.errors import SourceError
from penstock.core.values.dialect import DialectOptions
from penstock.core.zstd import zstd
from penstock.loading.files.compression import OUTPUT_PIECE_BYTES
from penstock.loading.files.local import READ_BYTES
from penstock.loading.files.streams import SourceReader
from support.files import write_to

if TYPE_CHECKING:
    from pathlib import Path

_ROWS = b"".join(b"%d,name %d\n" % (number, number * 7) for number in range(60_000))


def _read(path: Path, *, encoding: str | None = None) -> bytes:
    options = DialectOptions(encoding=encoding)
    with SourceReader() as reader, reader.open(reader.list([str(path)])[0], options) as stream:
        return b"".join(stream)


def test_stream_tells_what_it_reads(tmp_path: Path) -> None:
    """A stream knows its compression and mark, counts stored bytes and gives bounded pieces."""
    path = write_to(tmp_path / "data", gzip.compress(b"\xef\xbb\xbf" + _ROWS))
    with SourceReader() as reader, reader.open(reader.list([str(path)])[0]) as stream:
        pieces = list(stream)
    assert (stream.compression, stream.bom, stream.encoding) == ("gzip", "UTF8", "UTF8")
    assert b"".join(pieces) == _ROWS
    assert max(map(len, pieces)) <= OUTPUT_PIECE_BYTES
    assert stream.bytes_read == path.stat().st_size


@pytest.mark.parametrize("encoding", [None, "UTF16"])
def test_utf16_with_a_mark_is_transcoded(tmp_path: Path, encoding: str | None) -> None:
    """UTF-16 comes out as UTF-8 without its mark, stated or not."""
    path = write_to(tmp_path / "data.csv", zstd.compress("\ufeffnaïve,日本\n".encode("utf-16-be")))
    assert _read(path, encoding=encoding) == "naïve,日本\n".encode()


@pytest.mark.parametrize(
    "content", [b"", b"\xef\xbb\xbf", gzip.compress(b""), bz2.compress(b"")], ids=["nothing", "mark", "gzip", "bzip2"]
)
def test_empty_object_has_no_pieces(tmp_path: Path, content: bytes) -> None:
    """An object without text gives nothing, and its sample is whole."""
    path = write_to(tmp_path / "data.csv", content)
    assert _read(path) == b""
    with SourceReader() as reader:
        sample = reader.sample(reader.list([str(path)])[0])
    assert (sample.head, sample.is_whole) == (b"", True)


def test_archive_inside_compression_is_refused(tmp_path: Path) -> None:
    """A compressed tar, and an object compressed twice, are named for what they are."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        archive.addfile(tarfile.TarInfo("a.csv"))
    path = write_to(tmp_path / "data.csv.gz", gzip.compress(buffer.getvalue()))
    with pytest.raises(SourceError, match="is a tar archive"):
        _read(path)
    path.write_bytes(gzip.compress(bz2.compress(_ROWS)))
    with pytest.raises(SourceError, match="is compressed twice"):
        _read(path)


def test_sample_is_the_beginning(tmp_path: Path) -> None:
    """A sample has the requested length and says whether it is the whole object, which can be opened afterwards."""
    path = write_to(tmp_path / "data.csv", gzip.compress(_ROWS))
    with SourceReader() as reader:
        source = reader.list([str(path)])[0]
        sample = reader.sample(source, limit_bytes=1000)
        assert (sample.head, sample.is_whole, sample.compression) == (_ROWS[:1000], False, "gzip")
        assert reader.sample(source, limit_bytes=len(_ROWS)).is_whole
        with reader.open(source) as stream:
            assert b"".join(stream) == _ROWS


@pytest.mark.parametrize("change", ["grow", "shrink", "rewrite", "rewrite and restore the time"])
def test_file_that_changes_while_it_is_read_is_an_error(tmp_path: Path, change: str) -> None:
    """A file that is written to under the load is noticed at its end."""
    path = write_to(tmp_path / "data.csv", _ROWS)
    modified_ns = path.stat().st_mtime_ns
    with SourceReader() as reader, reader.open(reader.list([str(path)])[0]) as stream:
        pieces = iter(stream)
        next(pieces)
        if change == "shrink":
            os.truncate(path, READ_BYTES)
        else:
            with path.open("r+b") as file:
                file.seek(0, io.SEEK_END if change == "grow" else io.SEEK_SET)
                file.write(b"x\n")
            os.utime(path, ns=(1, modified_ns if "restore" in change else 1))
        with pytest.raises(SourceError, match=r'data\.csv" changed while it was read'):
            list(pieces)


def test_no_byte_of_a_file_that_was_overwritten_is_handed_on(tmp_path: Path) -> None:
    """Whoever restored its time of modification: nothing of the new content is mixed with the old."""
    path = write_to(tmp_path / "data.csv", b"old,1\n" * READ_BYTES)
    modified_ns = path.stat().st_mtime_ns
    read: list[bytes] = []
    with SourceReader() as reader, reader.open(reader.list([str(path)])[0]) as stream:
        pieces = iter(stream)
        read.append(next(pieces))
        with path.open("r+b") as file:
            file.write(b"new,1\n" * READ_BYTES)
        os.utime(path, ns=(1, modified_ns))
        with pytest.raises(SourceError, match=r'data\.csv" changed while it was read'):
            read.extend(pieces)
    assert b"new" not in b"".join(read)


def test_file_replaced_after_listing_is_an_error(tmp_path: Path) -> None:
    """A file of the same name that is another one is not read."""
    path = write_to(tmp_path / "data.csv", _ROWS)
    with SourceReader() as reader:
        source = reader.list([str(path)])[0]
        path.rename(tmp_path / "old")
        path.write_bytes(_ROWS)
        with pytest.raises(SourceError, match="changed while it was read"):
            reader.open(source)


def test_pipe_is_sampled_and_then_read_from_its_beginning(tmp_path: Path) -> None:
    """What a sample took of a pipe is given to the stream that follows; a second stream is refused."""
    path = tmp_path / "pipe"
    os.mkfifo(path)
    writer = threading.Thread(target=path.write_bytes, args=(gzip.compress(_ROWS),))
    writer.start()
    with SourceReader() as reader:
        source = reader.list([str(path)])[0]
        assert (source.size_bytes, source.version) == (None, None)
        assert reader.sample(source).head == _ROWS[: 256 * 1024]
        assert reader.sample(source, limit_bytes=10).head == _ROWS[:10]
        with reader.open(source) as stream:
            assert b"".join(stream) == _ROWS
        with pytest.raises(SourceError, match="can be read only once"):
            reader.open(source)
    writer.join()


def test_standard_input_is_sampled_and_read(tmp_path: Path) -> None:
    """A dash is standard input, which stays open."""
    read_end, write_end = os.pipe()
    saved = os.dup(0)
    os.dup2(read_end, 0)
    os.close(read_end)
    try:
        os.write(write_end, b"a,b\n1,2\n")
        os.close(write_end)
        with SourceReader() as reader:
            source = reader.list(["-"])[0]
            assert source.uri == "stdin"
            assert reader.sample(source).is_whole
            with reader.open(source) as stream:
                assert b"".join(stream) == b"a,b\n1,2\n"
        os.fstat(0)
    finally:
        os.dup2(saved, 0)
        os.close(saved)


def test_local_files_import_no_remote_libraries(tmp_path: Path) -> None:
    """Reading a local .gz loads no cloud libraries, which would cost start-up time."""
    path = write_to(tmp_path / "data.gz", gzip.compress(_ROWS))
    code = (
        "import sys\n"
        "from penstock.loading.files.streams import SourceReader\n"
        "reader = SourceReader()\n"
        "source = reader.list([sys.argv[1]])[0]\n"
        "assert reader.sample(source).head\n"
        "assert sum(map(len, reader.open(source)))\n"
        "heavy = {'boto3', 'botocore', 'obstore'}\n"
        "print(sorted(heavy & set(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_a_silent_pipe_can_be_interrupted(tmp_path: Path) -> None:
    """A reader that waits for a pipe's bytes is let go by another thread."""
    path = tmp_path / "pipe"
    os.mkfifo(path)
    # Opened for both, so that the pipe is neither without a writer nor at its end.
    keeper = os.open(path, os.O_RDWR)
    try:
        os.write(keeper, b"a,b\n" * 1000)
        with SourceReader() as reader, reader.open(reader.list([str(path)])[0]) as stream:
            timer = threading.Timer(0.2, reader.interrupt)
            timer.start()
            with pytest.raises(SourceError, match="stopped"):
                list(stream)
            timer.join()
    finally:
        os.close(keeper)


def test_pipe_without_a_folder_for_its_copy_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if Python finds no folder at all that takes a file, because every disk is full."""

    def fail(prefix: str) -> None:
        raise FileNotFoundError(errno.ENOENT, f"No usable temporary directory found for {prefix}")

    monkeypatch.setattr(tempfile, "mkdtemp", fail)
    with (
        SourceReader(spools=True) as reader,
        pytest.raises(SourceError, match=r"could not copy .* No usable temporary directory") as caught,
    ):
        reader.list(["-"])
    assert "TMPDIR" in str(caught.value.hint)
