"""S3 as a source: listed, read in parts, pinned, resumed; AWS's configuration honoured."""

from __future__ import annotations

import gzip
import random
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from penstock.core.aws.credentials import AwsCredentials
from penstock.core.errors import SourceError, UsageError
from penstock.loading.files.allowed import AllowedSources
from penstock.loading.files.remote import PART_BYTES, WINDOW_PARTS
from penstock.loading.files.streams import SourceReader
from support.loads import Loads, target

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from loading.files.remote.conftest import S3, Relay
    from penstock.core.values.notice import Notice

_ROOT = "s3://landing"


@pytest.fixture
def reader() -> Iterator[SourceReader]:
    """Return a reader that uses the environment's AWS configuration."""
    with SourceReader(credentials=AwsCredentials(), jitter=lambda: 0.0) as opened:
        yield opened


def _noise(length_bytes: int) -> bytes:
    # Text of letters, so that nothing takes it for an archive
    return b"t" + random.Random(3).randbytes(length_bytes // 2).hex().encode()[: length_bytes - 1]


def _read(reader: SourceReader, source: str) -> bytes:
    with reader.open(reader.list([source])[0]) as stream:
        return b"".join(stream)


@pytest.mark.part("rest")
def test_large_object_is_read_in_parts_in_order(s3: S3, reader: SourceReader) -> None:
    """An object of many parts and an odd end arrives whole, and its stored bytes are counted."""
    body = _noise(7 * PART_BYTES + 12345)
    s3.put("big.csv", body)
    with reader.open(reader.list([f"{_ROOT}/big.csv"])[0]) as stream:
        assert b"".join(stream) == body
    assert stream.bytes_read == len(body)


@pytest.mark.part("rest")
def test_multipart_upload_is_pinned_by_its_etag(s3: S3, reader: SourceReader) -> None:
    """The ETag of a multi-part object, which is no MD5, pins it all the same."""
    upload = s3.client.create_multipart_upload(Bucket="landing", Key="parts.gz")["UploadId"]
    body = gzip.compress(_noise(12_000_000))
    parts = []
    for number, start in enumerate(range(0, len(body), 5 << 20), start=1):
        part = s3.client.upload_part(
            Bucket="landing", Key="parts.gz", UploadId=upload, PartNumber=number, Body=body[start : start + (5 << 20)]
        )
        parts.append({"PartNumber": number, "ETag": part["ETag"]})
    s3.client.complete_multipart_upload(
        Bucket="landing", Key="parts.gz", UploadId=upload, MultipartUpload={"Parts": parts}
    )
    source = reader.list([f"{_ROOT}/parts.gz"])[0]
    assert source.version is not None
    assert source.version.endswith(f'-{len(parts)}"')
    with reader.open(source) as stream:
        assert b"".join(stream) == gzip.decompress(body)


def test_prefix_and_wildcards_list_keys_in_order(s3: S3, reader: SourceReader) -> None:
    """A prefix gives what lies below it without folder marks and hidden keys; wildcards match like paths."""
    for key in ("d/b.csv", "d/a b%20.csv", "d/sub/c.csv", "d/.tmp/x.csv", "d/é?.tsv", "dx.csv"):
        s3.put(key, b"1\n")
    s3.put("d/", b"")
    s3.put("d/sub/", b"")
    s3.put("d/empty.csv", b"")

    def keys(source: str) -> list[str]:
        return [item.uri.removeprefix(f"{_ROOT}/") for item in reader.list([source])]

    assert keys(f"{_ROOT}/d/") == ["d/a b%20.csv", "d/b.csv", "d/empty.csv", "d/sub/c.csv", "d/é?.tsv"]
    assert keys(f"{_ROOT}/d/*.csv") == ["d/a b%20.csv", "d/b.csv", "d/empty.csv"]
    assert keys(f"{_ROOT}/d*/**/*.csv") == ["d/a b%20.csv", "d/b.csv", "d/empty.csv", "d/sub/c.csv"]
    assert keys(f"{_ROOT}/d/é?.tsv") == ["d/é?.tsv"]
    assert _read(reader, f"{_ROOT}/d/a b%20.csv") == b"1\n"
    assert _read(reader, f"{_ROOT}/d/empty.csv") == b""


@pytest.mark.part("rest")
def test_object_replaced_while_it_is_read_is_an_error(s3: S3, reader: SourceReader) -> None:
    """Parts asked for after the object was replaced are refused, and the error says so."""
    body = _noise((WINDOW_PARTS + 4) * PART_BYTES)
    s3.put("big.csv", body)
    with reader.open(reader.list([f"{_ROOT}/big.csv"])[0]) as stream:
        pieces = iter(stream)
        next(pieces)
        s3.put("big.csv", body[::-1])
        with pytest.raises(SourceError, match=r'"s3://landing/big.csv" changed while it was read'):
            list(pieces)


def test_object_deleted_after_listing_is_an_error(s3: S3, reader: SourceReader) -> None:
    """An object that is gone is named."""
    s3.put("a.csv", b"1\n")
    source = reader.list([f"{_ROOT}/a.csv"])[0]
    s3.client.delete_object(Bucket="landing", Key="a.csv")
    with pytest.raises(SourceError, match=r'"s3://landing/a.csv" does not exist'):
        reader.open(source)


@pytest.mark.part("rest")
@pytest.mark.parametrize(
    "cuts",
    [[700_000] * 6, [PART_BYTES - 1] * 4, [10, 300_001, 20, 1_000_003], [1_000_000, 200, 200, 200, 900_000]],
    ids=["often", "late", "mixed", "headers"],
)
def test_dropped_connections_are_resumed_at_their_byte(
    s3: S3, relay_to_s3: Callable[[list[int]], Relay], reader: SourceReader, cuts: list[int]
) -> None:
    """Responses that end early, in their headers or in their bodies, are continued and the content is equal."""
    body = _noise(5 * PART_BYTES + 99)
    s3.put("big.csv", body)
    relay = relay_to_s3(cuts)
    assert _read(reader, f"{_ROOT}/big.csv") == body
    assert relay.connection_count > len(cuts)


def test_server_that_is_gone_is_given_up(
    s3: S3, relay_to_s3: Callable[[list[int]], Relay], reader: SourceReader
) -> None:
    """A server that refuses every connection is an error after a few attempts."""
    relay = relay_to_s3([])
    relay.close()
    with pytest.raises(SourceError, match=r'could not read "s3://landing/a.csv"') as caught:
        reader.list([f"{_ROOT}/a.csv"])
    assert "refused" in (caught.value.detail or "")


def test_sample_reads_the_beginning_only(s3: S3, reader: SourceReader) -> None:
    """A sample of a large object does not fetch it all, and the object can be opened afterwards."""
    body = _noise(3 * PART_BYTES)
    s3.put("big.csv", body)
    source = reader.list([f"{_ROOT}/big.csv"])[0]
    sample = reader.sample(source)
    assert (sample.head, sample.is_whole) == (body[: 256 * 1024], False)
    with reader.open(source) as stream:
        assert b"".join(stream) == body


def test_small_object_is_fetched_once(s3: S3, reader: SourceReader) -> None:
    """What a look at its beginning has read whole is not asked for again; a second reading asks."""
    s3.put("a.csv", b"1\n")
    s3.put("b.csv", b"2\n")
    sources = reader.list([f"{_ROOT}/a.csv", f"{_ROOT}/b.csv"])
    assert [sample.head for sample in reader.sample_all(sources)] == [b"1\n", b"2\n"]
    s3.client.delete_object(Bucket="landing", Key="a.csv")
    with reader.open(sources[0]) as stream:
        assert b"".join(stream) == b"1\n"
    assert stream.bytes_read == 2
    with pytest.raises(SourceError, match="does not exist"):
        reader.open(sources[0])


def test_copied_object_is_loaded_with_a_warning_that_names_the_other(s3: S3, database18: str) -> None:
    """Its size and ETag are those of one that is loaded into the same table."""
    loads = Loads(database18, setup="CREATE TABLE t (a int)")
    s3.put("d/a.csv", b"a\n1\n")
    job = replace(target(Path("x")), sources=(f"{_ROOT}/d/",))
    assert loads.run(job).rows == 1
    s3.client.copy_object(Bucket="landing", Key="d/b.csv", CopySource="landing/d/a.csv")
    assert loads.run(job).rows == 1
    (notice,) = loads.notices
    assert notice.startswith(f'"{_ROOT}/d/b.csv" may be "{_ROOT}/d/a.csv" under another name')
    assert notice.endswith("size and ETag are the same")


@pytest.mark.part("rest")
def test_closing_early_ends_the_requests(s3: S3, reader: SourceReader) -> None:
    """A stream can be closed before its end, and more than once.

    Reading on then raises an error, because it is not whole.
    """
    s3.put("big.csv", _noise(9 * PART_BYTES))
    stream = reader.open(reader.list([f"{_ROOT}/big.csv"])[0])
    pieces = iter(stream)
    next(pieces)
    stream.close()
    stream.close()
    with pytest.raises(SourceError, match="was stopped"):
        list(pieces)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (f"{_ROOT}/missing.csv", '"s3://landing/missing.csv" does not exist'),
        (f"{_ROOT}/missing/", '"s3://landing/missing/" matches no file'),
        (f"{_ROOT}/*.missing", '"s3://landing/\\*.missing" matches no file'),
        ("s3://no-such-bucket/d/", '"s3://no-such-bucket/d/" does not exist'),
        ("s3://", "needs a bucket's name"),
        ("s3://a bucket/d/", "needs a bucket's name"),
    ],
)
def test_source_that_stands_for_nothing_is_named(s3: S3, reader: SourceReader, source: str, message: str) -> None:
    """What does not exist is an error that names it and holds no secret."""
    with pytest.raises(SourceError, match=message) as caught:
        reader.list([source])
    assert "very-secret" not in str(caught.value)


def test_prefix_with_a_mark_alone_is_empty_and_says_so(s3: S3, reader: SourceReader) -> None:
    """A console marks a folder by an object of its name, a writer its end by another."""
    s3.put("night/", b"")
    s3.put("night/_SUCCESS", b"")
    s3.put("night/archive/", b"")
    s3.put("night/a.csv.tmp", b"1\n")
    notices: list[Notice] = []
    assert reader.list([f"{_ROOT}/night/"], on_notice=notices.append) == ()
    assert [notice.code for notice in notices] == ["file-skipped", "folder-empty"]
    s3.put("night/b.csv", b"1\n")
    s3.put("night/part-00000", b"")
    names = [item.uri.rpartition("/")[2] for item in reader.list([f"{_ROOT}/night/"])]
    assert names == ["b.csv", "part-00000"]


@pytest.mark.parametrize("key", ["d//a.csv", "d/./a.csv", "d/../a.csv"])
@pytest.mark.parametrize("source", ["d/", "d/*.csv", "**/*.csv"])
def test_key_that_has_no_path_fails_its_listing_by_name(s3: S3, reader: SourceReader, key: str, source: str) -> None:
    """It is not left out. The hint is followed: the others are named."""
    s3.put(key, b"1\n")
    s3.put("d/b.csv", b"2\n")
    with pytest.raises(SourceError, match="could not read") as caught:
        reader.list([f"{_ROOT}/{source}"])
    assert f'"{key}"' in (caught.value.detail or "")
    assert caught.value.hint is not None
    assert [each.uri for each in reader.list([f"{_ROOT}/d/b.csv"])] == [f"{_ROOT}/d/b.csv"]


@pytest.mark.parametrize("key", ["d//a.csv", "./a.csv", "d/../a.csv", "d//*.csv"])
def test_key_that_cannot_be_named_is_an_error(s3: S3, reader: SourceReader, key: str) -> None:
    """A slash too many, or what is a way through folders elsewhere."""
    with pytest.raises(SourceError, match="could not read") as caught:
        reader.list([f"{_ROOT}/{key}"])
    assert "is not supported" in str(caught.value.detail)


def test_profile_gives_credentials_region_and_endpoint(
    s3: S3, aws_environment: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A profile of the configuration file is all that is needed."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_ENDPOINT_URL"):
        aws_environment.delenv(name)
    (tmp_path / "config").write_text(
        f"[profile etl]\nregion = eu-west-3\nendpoint_url = http://127.0.0.1:{s3.port}\n"
        "aws_access_key_id = AKIAPROFILE\naws_secret_access_key = from-profile\n"
    )
    aws_environment.setenv("AWS_PROFILE", "etl")
    s3.put("a.csv", b"1\n")
    credentials = AwsCredentials()
    assert credentials.s3_config() == {"region": "eu-west-3", "endpoint": f"http://127.0.0.1:{s3.port}"}
    provider = credentials.s3_credentials()
    assert provider is not None
    assert provider()["access_key_id"] == "AKIAPROFILE"
    with SourceReader(credentials=credentials) as reader:
        assert _read(reader, f"{_ROOT}/a.csv") == b"1\n"


def test_aws_region_comes_before_the_profiles_region(aws_environment: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As for AWS's command line; botocore alone would take the profile's."""
    (tmp_path / "config").write_text("[default]\nregion = eu-west-3\n")
    assert AwsCredentials().s3_config() == {"region": "eu-west-3"}
    aws_environment.setenv("AWS_REGION", "ap-south-1")
    assert AwsCredentials().s3_config() == {"region": "ap-south-1"}


def test_public_bucket_is_read_without_credentials(s3: S3, aws_environment: pytest.MonkeyPatch) -> None:
    """Where no credentials are configured, requests are not signed."""
    aws_environment.delenv("AWS_ACCESS_KEY_ID")
    aws_environment.delenv("AWS_SECRET_ACCESS_KEY")
    s3.client.put_object(Bucket="landing", Key="a.csv", Body=b"1\n", ACL="public-read")
    credentials = AwsCredentials()
    assert credentials.s3_credentials() is None
    with SourceReader(credentials=credentials) as reader:
        assert _read(reader, f"{_ROOT}/a.csv") == b"1\n"


def test_service_endpoint_wins_and_can_be_ignored(aws_environment: pytest.MonkeyPatch) -> None:
    """AWS_ENDPOINT_URL_S3 comes before AWS_ENDPOINT_URL; AWS's switch turns both off."""
    aws_environment.setenv("AWS_ENDPOINT_URL", "http://general")
    aws_environment.setenv("AWS_ENDPOINT_URL_S3", "http://service")
    assert AwsCredentials().s3_config() == {"endpoint": "http://service"}
    aws_environment.setenv("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS", "true")
    assert AwsCredentials().s3_config() == {}


def test_missing_profile_is_an_error(aws_environment: pytest.MonkeyPatch) -> None:
    """A profile that is not configured is named."""
    with pytest.raises(SourceError, match="could not obtain AWS credentials") as caught:
        AwsCredentials(profile="nobody").s3_credentials()
    assert "nobody" in (caught.value.detail or "")


def test_a_key_with_escapes_stays_below_an_allowed_prefix(s3: S3) -> None:
    """It is the key itself: nothing decodes it, and no part of it leads upwards."""
    s3.put("a/%2e%2e/x.csv", b"1,inside\n")
    s3.put("x.csv", b"2,outside\n")
    with SourceReader(credentials=AwsCredentials(), allowed=AllowedSources([f"{_ROOT}/a/"])) as reader:
        assert _read(reader, f"{_ROOT}/a/%2e%2e/x.csv") == b"1,inside\n"
        with pytest.raises(UsageError):
            reader.list([f"{_ROOT}/a/../x.csv"])


def test_prefix_with_brackets_is_no_wildcard(s3: S3, reader: SourceReader) -> None:
    """A prefix is taken as it is."""
    s3.put("run[1]/a.csv", b"1\n")
    assert [source.uri for source in reader.list([f"{_ROOT}/run[1]/"])] == [f"{_ROOT}/run[1]/a.csv"]
