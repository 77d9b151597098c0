"""HTTP as a source: with and without ranges, signed, redirected, dropped."""

from __future__ import annotations

import gzip
import signal
import socket
import subprocess
import sys
import threading
from typing import TYPE_CHECKING

import pytest

from penstock.api.ledger_view import LedgerView
from penstock.core.connect.connection import ConnectionFactory
from penstock.core.errors import DataError, SourceError, TargetError, UsageError
from penstock.core.values.dialect import DialectOptions
from penstock.core.values.job import LoadRules, TargetJob
from penstock.core.values.table import TableName
from penstock.loading.files.allowed import AllowedSources
from penstock.loading.files.remote import PART_BYTES
from penstock.loading.files.streams import SourceReader
from support.loads import Loads

if TYPE_CHECKING:
    from collections.abc import Iterator

    from loading.files.remote.conftest import Web


@pytest.fixture
def reader() -> Iterator[SourceReader]:
    """Return a reader without credentials."""
    with SourceReader(jitter=lambda: 0.0) as opened:
        yield opened


def _read(reader: SourceReader, url: str) -> bytes:
    with reader.open(reader.list([url])[0]) as stream:
        return b"".join(stream)


def test_ranges_are_pinned_to_the_etag(web: Web, reader: SourceReader) -> None:
    """A server with ranges and an ETag is read in parts."""
    web.body = b"0123456789abcde\n" * (PART_BYTES // 4)
    source = reader.list([web.url("data.csv")])[0]
    assert (source.size_bytes, source.version) == (len(web.body), '"v1"')
    with reader.open(source) as stream:
        assert b"".join(stream) == web.body
    assert sum(1 for _, wanted in web.requests if wanted) == 1 + 4


@pytest.mark.parametrize("habits", ["noranges", "noetag", "noranges/noetag", "weak", "empty", "redirect/data.csv"])
def test_other_servers_are_read_too(web: Web, reader: SourceReader, habits: str) -> None:
    """Without ranges, ETag or bytes, with a weak ETag or through a redirect, the content is the same."""
    assert _read(reader, web.url(habits)) == (b"" if habits == "empty" else web.body)


def test_redirects_stay_below_what_is_allowed(web: Web) -> None:
    """Of a reader whose sources another party names: one that leads out is refused before it is followed."""
    with SourceReader(allowed=AllowedSources([web.url("")])) as reader:
        assert _read(reader, web.url("redirect/data.csv")) == web.body
    before = len(web.requests)
    with (
        SourceReader(allowed=AllowedSources([web.url("redirect/")])) as reader,
        pytest.raises(UsageError, match="none of the sources"),
    ):
        reader.list([web.url("redirect/data.csv")])
    assert [path for path, _ in web.requests[before:]] == ["/redirect/data.csv"]


def test_allowed_url_may_have_letters_of_any_language(web: Web) -> None:
    """As a URL of a load may."""
    with SourceReader(allowed=AllowedSources([web.url("")])) as reader:
        assert _read(reader, web.url("größe/data.csv")) == web.body


def test_content_encoding_is_left_to_us(web: Web, reader: SourceReader) -> None:
    """An object stored with Content-Encoding: gzip arrives as stored and is decompressed once."""
    rows = web.body
    web.body = gzip.compress(rows)
    with reader.open(reader.list([web.url("encoded")])[0]) as stream:
        assert b"".join(stream) == rows
    assert (stream.compression, stream.bytes_read) == ("gzip", len(web.body))


@pytest.mark.parametrize("habits", ["data.csv", "weak"])
def test_object_that_changes_is_an_error(web: Web, reader: SourceReader, habits: str) -> None:
    """Another ETag than the listed one is noticed, whether the server or we compare it."""
    source = reader.list([web.url(habits)])[0]
    web.etag = '"v2"'
    with pytest.raises(SourceError, match="changed while it was read"):
        reader.open(source)


def test_etags_that_differ_are_told(web: Web, reader: SourceReader) -> None:
    """Where the size is the same, the error says what is not: servers behind one name may each have an ETag."""
    source = reader.list([web.url("weak")])[0]
    web.etag = '"v2"'
    with pytest.raises(SourceError) as caught:
        reader.open(source)
    assert caught.value.detail == 'It was listed with the ETag W/"v1"; now it has the ETag W/"v2".'


def test_more_bytes_than_were_asked_for_are_an_error(web: Web, reader: SourceReader) -> None:
    """A response that goes on behind its range does not bring bytes of the next one twice."""
    web.body = b"0123456789abcde\n" * (PART_BYTES // 8)
    with pytest.raises(SourceError, match="sent more bytes than requested"):
        _read(reader, web.url("longer"))


def test_urls_are_asked_for_at_once_and_stay_in_order(web: Web, reader: SourceReader) -> None:
    """A list of URLs takes a few round trips, not one each; the first that fails is the error."""
    web.companions = threading.Barrier(4)
    urls = [web.url(f"together/{number}.csv") for number in range(8)]
    assert [source.location for source in reader.list(urls)] == urls
    with pytest.raises(SourceError, match="denied/b"):
        reader.list([web.url("a.csv"), web.url("denied/b.csv"), web.url("denied/c.csv")])


def test_silent_server_does_not_keep_a_process_from_ending() -> None:
    """Ctrl-C ends a listing at once, though the request itself is given up half a minute later only."""
    script = "import sys; from penstock.loading.files.streams import SourceReader; SourceReader().list(sys.argv[1:])"
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/data.csv"
        with subprocess.Popen([sys.executable, "-c", script, url], stderr=subprocess.PIPE) as process:
            try:
                with silent.accept()[0] as connection:
                    assert connection.recv(1)
                    process.send_signal(signal.SIGINT)
                    _, told = process.communicate(timeout=20)
            finally:
                process.kill()
    assert b"KeyboardInterrupt" in told


def test_dropped_stream_without_ranges_says_why_it_cannot_resume(web: Web, reader: SourceReader) -> None:
    """Where the server has no ranges, a lost connection is an error with its byte and reason."""
    with pytest.raises(SourceError, match=r"could not read .* beyond byte \d+") as caught:
        _read(reader, web.url("noranges/drop"))
    assert "reading cannot be resumed" in (caught.value.detail or "")


def test_signed_url_is_read_and_its_signature_never_shown(web: Web, reader: SourceReader) -> None:
    """A signed URL needs no HEAD request; its query appears neither in the object nor in errors."""
    source = reader.list([web.url("signed/data.csv?sig=top%2Bsecret")])[0]
    with reader.open(source) as stream:
        assert b"".join(stream) == web.body
    assert source.uri == web.url("signed/data.csv")
    with pytest.raises(SourceError, match="not allowed to read") as caught:
        reader.list([web.url("signed/data.csv?sig=other%2Bsecret")])
    assert "secret" not in f"{source!r} {caught.value!s}"
    assert caught.value.detail == "The server answered HTTP status 403 Forbidden (AccessDenied)."


def test_user_and_password_are_sent_and_not_shown(web: Web, reader: SourceReader) -> None:
    """Userinfo becomes an Authorization header."""
    source = reader.list([web.url("auth").replace("127", "me:p%40ss@127")])[0]
    assert source.uri == web.url("auth")
    with reader.open(source) as stream:
        assert b"".join(stream) == web.body


def test_passing_failures_are_tried_again(web: Web, reader: SourceReader) -> None:
    """A server that is briefly unavailable is asked again."""
    source = reader.list([web.url("flaky")])[0]
    web.failures_left = 3
    with reader.open(source) as stream:
        assert b"".join(stream) == web.body


@pytest.mark.parametrize(
    ("path", "detail"),
    [
        ("chunked", "The server does not report the object's size: download it, or pipe it in."),
        ("denied", "The server answered HTTP status 403 Forbidden (AccessDenied)."),
    ],
)
def test_refusals_are_told(web: Web, reader: SourceReader, path: str, detail: str) -> None:
    """What a server does not allow is reported in plain words."""
    with pytest.raises(SourceError) as caught:
        reader.list([web.url(path)])
    assert caught.value.detail == detail


def test_wildcard_in_a_url_is_told_to_mean_nothing(web: Web, reader: SourceReader) -> None:
    """A web server lists nothing."""
    with pytest.raises(SourceError, match="not allowed to read") as caught:
        reader.list([web.url("denied/part-*.csv")])
    assert "HTTP has no listing" in (caught.value.hint or "")


@pytest.mark.parametrize("url", ["http://", "http://[bad/x?sig=secret", "https:///path"])
def test_invalid_url_is_an_error(reader: SourceReader, url: str) -> None:
    """A URL without a host is refused, without being shown."""
    with pytest.raises(SourceError, match="not a valid URL") as caught:
        reader.list([url])
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("ranges", ["noranges", "ranges"])
@pytest.mark.parametrize(
    ("habits", "is_known"), [("noetag/modified", True), ("etag", True), ("weak", True), ("noetag", False)]
)
def test_url_that_is_loaded_is_recognized(web: Web, database18: str, ranges: str, habits: str, is_known: bool) -> None:
    """By its ETag, or by Last-Modified and length; a server that sends neither leaves it to the user."""
    loads = Loads(database18, setup="CREATE TABLE t (id int, name text)")
    web.body = b"1,name\n2,name\n"
    url = web.url(f"{ranges}/{habits}/data.csv")
    job = TargetJob(sources=(url,), into=TableName(schema=None, name="t"), dialect=DialectOptions(header=False))
    assert loads.run(job).rows == 2
    if is_known:
        assert loads.run(job).objects_skipped == 1
    else:
        with pytest.raises(TargetError, match="may have changed") as caught:
            loads.run(job)
        assert "Last-Modified" in str(caught.value.detail)
        assert loads.run(job, rules=LoadRules(retry_for=0.0, changed="skip")).objects_skipped == 1


@pytest.mark.parametrize("change", ["time", "length"])
def test_url_with_another_time_or_length_has_changed(web: Web, database18: str, change: str) -> None:
    """Where the server sends no ETag."""
    loads = Loads(database18, setup="CREATE TABLE t (id int, name text)")
    web.body = b"1,name\n2,name\n"
    url = web.url("noranges/noetag/modified/data.csv")
    job = TargetJob(sources=(url,), into=TableName(schema=None, name="t"), dialect=DialectOptions(header=False))
    loads.run(job)
    if change == "time":
        web.modified = "Wed, 21 Oct 2015 07:28:01 GMT"
    else:
        web.body += b"3,name\n"
    with pytest.raises(TargetError, match="has changed since it was loaded"):
        loads.run(job)


def test_files_of_one_time_and_size_are_not_taken_for_one_another(web: Web, database18: str) -> None:
    """As those of a server that publishes all files at once: no warning of a renamed one."""
    loads = Loads(database18, setup="CREATE TABLE t (id int, name text)")
    web.body = b"1,name\n2,name\n"
    for name in ("a.csv", "b.csv"):
        url = web.url(f"noetag/modified/{name}")
        job = TargetJob(sources=(url,), into=TableName(schema=None, name="t"), dialect=DialectOptions(header=False))
        assert loads.run(job).rows == 2
    assert loads.notices == []


def _job(*urls: str) -> TargetJob:
    return TargetJob(sources=urls, into=TableName(schema=None, name="t"), dialect=DialectOptions(header=False))


def test_a_url_with_a_query_is_not_read_without_it(web: Web, database18: str) -> None:
    """The ledger does not have the query, so a load is not resumed or verified by what the ledger has."""
    loads = Loads(database18, chunk_bytes=100, piece_bytes=100, setup="CREATE TABLE t (id int, name text)")
    web.body = b"1,name\n" * 1000 + b"x,name\n"
    job = _job(web.url("data.csv?day=2026-11-23"))
    with pytest.raises(DataError) as failed:
        loads.run(job, batch_bytes=100)
    load_id = str(failed.value.load_id)
    assert "Resume with the same command." in str(failed.value.hint)
    with LedgerView(ConnectionFactory(loads.conninfo)) as view:
        with pytest.raises(TargetError, match="of which the ledger does not have the query") as caught:
            view.job(load_id)
        with pytest.raises(TargetError, match="no load can be resumed"):
            view.find_unfinished("latest")
        loads.execute("UPDATE penstock.loads SET state = 'complete'")
        with pytest.raises(TargetError, match="cannot be verified: the ledger does not have its sources"):
            view.verify(load_id)
        (unknown,) = view.verify_table(TableName(schema=None, name="t")).unknown
    assert (unknown, "2026-11-23" in str(caught.value)) == (load_id, False)
    assert loads.execute("SELECT count(*) FROM penstock.loads WHERE job::text || meaning::text ~ '11-23'") == [(0,)]


@pytest.mark.parametrize("token", ["", "&token=x"])
def test_urls_that_differ_in_their_query_alone_are_not_one_object(web: Web, database18: str, token: str) -> None:
    """Where the server sends no ETag, the version has a digest of the query. A token beside it only grants access."""
    loads = Loads(database18, setup="CREATE TABLE t (id int, name text)")
    web.body = b"1,name\n2,name\n"
    first, second = (_job(web.url(f"noetag/modified/data.csv?file={name}{token}")) for name in "ab")
    with pytest.raises(SourceError, match="with different queries"):
        loads.run(_job(*first.sources, *second.sources))
    loads.run(first)
    with pytest.raises(TargetError, match="has changed since it was loaded"):
        loads.run(second)
    with pytest.raises(UsageError, match="--changed skip cannot be used with the query"):
        loads.run(second, rules=LoadRules(retry_for=0.0, changed="skip"))
    assert loads.run(first).objects_skipped == 1
    assert loads.run(first, rules=LoadRules(retry_for=0.0, changed="skip")).objects_skipped == 1


def test_object_of_the_same_size_and_another_time_is_an_error(web: Web, reader: SourceReader) -> None:
    """Where the server serves no ranges of it."""
    for habits, change in (("noranges/noetag/modified", "modified"), ("noranges", "etag")):
        source = reader.list([web.url(f"{habits}/data.csv")])[0]
        setattr(web, change, "Wed, 21 Oct 2015 07:28:01 GMT" if change == "modified" else '"v2"')
        with pytest.raises(SourceError, match="changed while it was read"):
            reader.open(source)
