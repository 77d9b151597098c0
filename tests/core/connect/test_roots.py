"""Where Amazon's root certificates are looked for, and which of them verify what. Certificates are made here."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest
import trustme

from penstock.core.connect.tls import find_roots, missing_roots, read_roots, search_roots
from support.files import write_to
from support.tls import RDS_HOST, amazon_like_authority, write_roots

if TYPE_CHECKING:
    from pathlib import Path

_NOW = datetime.now(UTC)
_PROXY_HOST = "pool.proxy-c9akciq32.eu-west-1.rds.amazonaws.com"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Provide an empty home."""
    return tmp_path / "home"


@pytest.mark.parametrize(
    "place", [".postgresql/root.crt", ".postgresql/global-bundle.pem", ".config/penstock/eu-west-1-bundle.pem"]
)
def test_amazons_roots_are_found(home: Path, place: str) -> None:
    """Libpq's own file and a bundle as AWS names it, of all regions or of the endpoint's."""
    path = write_roots(amazon_like_authority(), home / place)
    assert find_roots([RDS_HOST], {"HOME": str(home)}) == str(path)


def test_file_without_amazons_roots_is_passed_over(home: Path) -> None:
    """A root.crt for a company's own servers does not keep Amazon's from being found."""
    write_roots(trustme.CA(organization_name="Example"), home / ".postgresql" / "root.crt")
    bundle = write_roots(amazon_like_authority(), home / ".postgresql" / "global-bundle.pem")
    assert find_roots([RDS_HOST], {"HOME": str(home)}) == str(bundle)


def test_system_store_counts_where_amazons_roots_were_added_to_it(home: Path) -> None:
    """The system's file is named by its path: psycopg's OpenSSL has a store of its own, which is empty."""
    path = write_roots(amazon_like_authority(), home.parent / "system.crt")
    assert find_roots([RDS_HOST], {"HOME": str(home), "SSL_CERT_FILE": str(path)}) == str(path)


def test_expired_roots_do_not_count(home: Path) -> None:
    """A bundle of long ago verifies nothing any more."""
    write_roots(amazon_like_authority(), home / ".postgresql" / "root.crt")
    later = _NOW + timedelta(days=365_000)
    assert search_roots(RDS_HOST, {"HOME": str(home)}, now=later).chosen is None


def test_proxy_is_verified_with_public_roots(home: Path) -> None:
    """RDS Proxy has certificates of Amazon's public authorities, which RDS's own bundle does not hold."""
    path = write_roots(amazon_like_authority(), home / ".postgresql" / "root.crt")
    search = search_roots(_PROXY_HOST, {"HOME": str(home)}, now=_NOW)
    assert path in [file.path for file in search.files]
    # The machine's own store may have them.
    assert search.chosen is None or search.chosen.path != path
    assert "ca-certificates" in str(missing_roots(_PROXY_HOST, search).hint)


def test_missing_roots_are_told_with_what_to_download(home: Path) -> None:
    """The bundle's address, where to put it, which setting names it, and where it was looked for."""
    error = missing_roots(RDS_HOST, search_roots(RDS_HOST, {"HOME": str(home)}, now=_NOW))
    words = str(error)
    for part in ("/global/global-bundle.pem", "~/.postgresql", "PGSSLROOTCERT", "sslrootcert=", str(home), RDS_HOST):
        assert part in words
    assert not error.is_transient


def test_given_file_is_the_only_one(home: Path) -> None:
    """What the user named is used, whatever else there is."""
    write_roots(amazon_like_authority(), home / ".postgresql" / "root.crt")
    own = write_roots(trustme.CA(), home / "own.pem")
    search = search_roots(RDS_HOST, {"HOME": str(home)}, given=str(own), now=_NOW)
    assert search.chosen is not None
    assert (search.chosen.path, search.is_given) == (own, True)


def test_file_that_is_no_certificate_says_so(tmp_path: Path) -> None:
    """So that a login page saved as a bundle is noticed."""
    path = write_to(tmp_path / "bundle.pem", "<html>")
    assert read_roots(path).problem == "holds no certificates in PEM form"
    assert read_roots(tmp_path / "none").problem == "No such file or directory"


def test_changed_file_is_read_again(tmp_path: Path) -> None:
    """A bundle that is downloaded while a load waits is seen."""
    path = write_to(tmp_path / "bundle.pem", "")
    assert read_roots(path).certificates == ()
    write_roots(amazon_like_authority(), path)
    assert len(read_roots(path).certificates) == 1
