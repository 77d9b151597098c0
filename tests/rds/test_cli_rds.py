"""`penstock rds certificates`, as a user asks for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from psycopg.conninfo import conninfo_to_dict

from support.tls import RDS_HOST, TlsFront, amazon_like_authority, write_roots

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    import trustme

    from support.command import Finished

    Penstock = Callable[..., Finished]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Provide a home without certificates, with AWS credentials in the environment."""
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in (
        "PGSSLROOTCERT",
        "SSL_CERT_FILE",
        "XDG_CONFIG_HOME",
        "AWS_PROFILE",
        "AWS_REGION",
        "AWS_DEFAULT_REGION",
    ):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "very-secret")
    return tmp_path


@pytest.fixture
def authority(home: Path) -> trustme.CA:
    """Provide an authority that passes for Amazon's, whose root is in the home."""
    made = amazon_like_authority()
    write_roots(made, home / ".postgresql" / "global-bundle.pem")
    return made


@pytest.fixture
def front(authority: trustme.CA, database18: str) -> Iterator[TlsFront]:
    """Provide a server that speaks TLS under an endpoint's name."""
    given = conninfo_to_dict(database18)
    made = TlsFront(authority, RDS_HOST, f"{given['host']}/.s.PGSQL.{given['port']}")
    yield made
    made.close()


def test_certificates_are_told_with_their_end(penstock: Penstock, home: Path, authority: trustme.CA) -> None:
    """Where they were looked for, which file would be used, and what is in it."""
    done = penstock("rds", "certificates")
    assert done.code == 0
    assert f"root certificates in {home}/.postgresql/global-bundle.pem:" in done.out
    assert "Amazon RDS, expires " in done.out
    found = penstock("rds", "certificates", "--json").object
    assert found["verify_full"] is True
    assert [each["unit"] for each in found["certificates"]] == ["Amazon RDS"]


def test_missing_certificates_are_a_failure(penstock: Penstock, home: Path) -> None:
    """Every place that was searched is named, and the exit code shows the failure."""
    done = penstock("rds", "certificates")
    assert done.code == 7
    assert f"{home}/.postgresql/root.crt: no such file or directory" in done.out
    assert "verify-full would not work" in done.out


def test_server_is_verified_through_a_tunnel(penstock: Penstock, front: TlsFront) -> None:
    """With a host the server is asked for its certificate, and nothing else."""
    arguments = ["rds", "certificates", "--host", RDS_HOST, "--tunnel", f"localhost:{front.port}"]
    done = penstock(*arguments)
    assert done.code == 0
    assert f"sslmode=verify-full works: {RDS_HOST} showed a certificate" in done.out
    assert penstock(*arguments, "--json").object["verify_full"] is True


def test_tunnel_needs_to_know_whose_certificate_it_is(penstock: Penstock, home: Path) -> None:
    """Without a host nothing would be asked through it."""
    done = penstock("rds", "certificates", "--tunnel", "localhost:6000")
    assert (done.code, done.out) == (2, "")


def test_unverified_server_is_told_why(penstock: Penstock, front: TlsFront, home: Path) -> None:
    """The certificate's authority is none of those in the file."""
    write_roots(amazon_like_authority(), home / ".postgresql" / "root.crt")
    done = penstock("rds", "certificates", "--host", RDS_HOST, "--tunnel", f"localhost:{front.port}")
    assert done.code == 7
    assert "could not be verified" in done.err
    assert "root.crt" in done.err
    as_json = penstock("rds", "certificates", "--host", RDS_HOST, "--tunnel", f"localhost:{front.port}", "--json")
    assert as_json.object["state"] == "failed"


def test_system_named_by_variable_is_explained(penstock: Penstock, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """sslrootcert=system means the store of psycopg's own OpenSSL, and that is empty."""
    monkeypatch.setenv("PGSSLROOTCERT", "system")
    done = penstock("rds", "certificates")
    assert "named by PGSSLROOTCERT:" in done.out
    assert "SSL_CERT_FILE" in done.out or "certificates: " in done.out
    assert "Traceback" not in done.err


def test_password_on_the_command_line_is_warned_of_by_every_command(penstock: Penstock, database18: str) -> None:
    """Not by load alone."""
    done = penstock("loads", "--to", f"{database18} password=x")
    assert "every user of this machine can read the password" in done.err
