"""Connections by TLS, IAM token and tunnel, to a server that passes for one of Amazon RDS."""

from __future__ import annotations

from typing import TYPE_CHECKING

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from penstock.api.connect import connect_to
from penstock.api.functions import load
from penstock.core.aws.token import RdsTokens
from penstock.core.catalogue.catalog import read_server_facts
from penstock.core.connect.connection import ConnectionFactory
from penstock.core.errors import ServerError, UsageError
from penstock.core.values.inspection import Encryption
from penstock.core.values.job import LoadJob, LoadRules, TargetJob
from penstock.core.values.names import parse_table_name
from penstock.embedded.users import choose_server_user, give_to
from penstock.loading.loader import Loader
from penstock.preflight.doctor import inspect_server
from support.files import write_to
from support.servers import installed
from support.tls import RDS_HOST, FakeTokenCheck, TlsFront, amazon_like_authority, write_roots

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    import trustme

    from penstock.core.connect.connection import Connection
    from penstock.embedded.server import EmbeddedServer

_KEY, _SECRET = "AKIAEXAMPLE", "very-secret"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Provide a home without certificates, with AWS credentials in the environment."""
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("PGSSLMODE", "PGSSLROOTCERT", "SSL_CERT_FILE", "XDG_CONFIG_HOME", "AWS_SESSION_TOKEN", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", _KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", _SECRET)
    return tmp_path


@pytest.fixture
def authority(home: Path) -> trustme.CA:
    """Provide an authority that passes for Amazon's, whose root is in the home."""
    made = amazon_like_authority()
    write_roots(made, home / ".postgresql" / "global-bundle.pem")
    return made


@pytest.fixture
def fronts(database18: str) -> Iterator[Callable[..., TlsFront]]:
    """Provide a function (authority, name, admit=) that puts TLS before the server."""
    given = conninfo_to_dict(database18)
    made: list[TlsFront] = []

    def make(authority: trustme.CA, name: str = RDS_HOST, *, admit: FakeTokenCheck | None = None) -> TlsFront:
        made.append(TlsFront(authority, name, f"{given['host']}/.s.PGSQL.{given['port']}", admit=admit))
        return made[-1]

    yield make
    for front in made:
        front.close()


@pytest.fixture
def checker() -> FakeTokenCheck:
    """Provide the fake of Amazon's check of tokens, for the endpoint at its default port."""
    return FakeTokenCheck(host=RDS_HOST, port=5432, access_key=_KEY, secret_key=_SECRET, users={"postgres"})


def endpoint(database: str, **settings: object) -> str:
    """Return a conninfo of the database at the endpoint's name, as a user without a tunnel would write it."""
    given = {"host": RDS_HOST, "user": "postgres", "dbname": conninfo_to_dict(database)["dbname"], **settings}
    return make_conninfo(**given)  # type: ignore[arg-type]


def is_encrypted(session: Connection) -> bool:
    """Return whether libpq speaks TLS."""
    return bool(session.pgconn.ssl_in_use)


def test_amazons_server_is_verified_by_default(
    database18: str, authority: trustme.CA, fronts: Callable[..., TlsFront]
) -> None:
    """With the roots in a well-known place nothing needs to be said."""
    front = fronts(authority)
    with connect_to(endpoint(database18, hostaddr="127.0.0.1", port=front.port)).connect() as session:
        assert is_encrypted(session)
        assert session.info.get_parameters()["sslmode"] == "verify-full"


@pytest.mark.part("rest")
def test_server_that_speaks_tls_itself_is_verified(
    new_server: Callable[..., EmbeddedServer], authority: trustme.CA, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Libpq against PostgreSQL's own TLS, where an installation is built with it (Debian's is, the wheel's is not)."""
    if 15 not in installed():
        pytest.skip("needs a PostgreSQL that is built with TLS (Debian's package postgresql-15)")
    server = new_server(15)
    server.ensure_running()
    issued = authority.issue_cert(RDS_HOST)
    key, certificates = server.data_dir / "tls.key", server.data_dir / "tls.crt"
    issued.private_key_pem.write_to_path(str(key))
    certificates.write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))
    for path in (key, certificates):
        path.chmod(0o600)
        give_to(path, choose_server_user(server.data_dir))
    with psycopg.connect(server.conninfo(), autocommit=True) as admin:
        for setting in ("ssl_key_file = 'tls.key'", "ssl_cert_file = 'tls.crt'", "ssl = 'on'"):
            admin.execute(f"ALTER SYSTEM SET {setting}")  # type: ignore[arg-type]
        admin.execute("CREATE ROLE loader LOGIN PASSWORD 'hunter2'")
    server.stop()
    server.ensure_running()
    monkeypatch.setenv("PGPASSWORD", "hunter2")
    port = conninfo_to_dict(server.tcp_conninfo())["port"]
    conninfo = make_conninfo(host=RDS_HOST, hostaddr="127.0.0.1", port=port, user="loader", dbname="postgres")
    with connect_to(conninfo).connect() as session:
        assert is_encrypted(session)
    monkeypatch.setenv("PGSSLROOTCERT", str(write_roots(amazon_like_authority(), server.data_dir / "other.pem")))
    with pytest.raises(ServerError, match="certificate verify failed"):
        connect_to(conninfo).connect()


@pytest.mark.part("rest")
def test_server_of_another_authority_is_refused(
    database18: str, authority: trustme.CA, fronts: Callable[..., TlsFront]
) -> None:
    """Whoever passes for the server without Amazon's certificate is found out, before a password is sent."""
    front = fronts(amazon_like_authority())
    with pytest.raises(ServerError, match="certificate verify failed") as caught:
        connect_to(endpoint(database18, hostaddr="127.0.0.1", port=front.port)).connect()
    assert f"penstock rds certificates --host {RDS_HOST}" in str(caught.value)
    assert front.plain_requests == 0


@pytest.mark.part("rest")
def test_server_of_another_name_is_refused(
    database18: str, authority: trustme.CA, fronts: Callable[..., TlsFront]
) -> None:
    """Amazon's certificate for another server will not do."""
    front = fronts(authority, "other.c9akciq32.eu-west-1.rds.amazonaws.com")
    with pytest.raises(ServerError, match="does not match host name"):
        connect_to(endpoint(database18, hostaddr="127.0.0.1", port=front.port)).connect()


def test_without_roots_nothing_is_sent(database18: str, home: Path, fronts: Callable[..., TlsFront]) -> None:
    """The error says what to download; there is no unverified attempt."""
    front = fronts(amazon_like_authority())
    with pytest.raises(ServerError, match="no root certificates to verify"):
        connect_to(endpoint(database18, hostaddr="127.0.0.1", port=front.port)).connect()
    assert front.plain_requests == 0


def test_users_own_root_and_mode_are_kept(
    database18: str, home: Path, fronts: Callable[..., TlsFront], monkeypatch: pytest.MonkeyPatch
) -> None:
    """PGSSLROOTCERT names the file; sslmode=require does without verifying."""
    own = amazon_like_authority()
    front = fronts(own)
    conninfo = endpoint(database18, hostaddr="127.0.0.1", port=front.port)
    with connect_to(make_conninfo(conninfo, sslmode="require")).connect() as session:
        assert is_encrypted(session)
    monkeypatch.setenv("PGSSLROOTCERT", str(write_roots(own, home / "own.pem")))
    with connect_to(conninfo).connect() as session:
        assert is_encrypted(session)


def test_other_servers_follow_libpqs_rules(database18: str, home: Path) -> None:
    """A server that is not Amazon's and has no TLS is connected to as ever."""
    with connect_to(database18).connect() as session:
        assert not is_encrypted(session)


@pytest.mark.parametrize("mode", ["verify-full", "require"])
def test_inspection_tells_how_the_connection_is_protected(
    database18: str, authority: trustme.CA, fronts: Callable[..., TlsFront], monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    """Also where a variable says it, or nobody; a socket needs nothing."""
    front = fronts(authority)
    if mode == "require":
        monkeypatch.setenv("PGSSLMODE", mode)
    with ConnectionFactory(endpoint(database18, hostaddr="127.0.0.1", port=front.port)).connect() as session:
        assert inspect_server(session, pooler=None).encryption == Encryption(is_encrypted=True, sslmode=mode)
    with ConnectionFactory(database18).connect() as session:
        assert inspect_server(session, pooler=None).encryption is None


def test_iam_token_goes_through_a_tunnel_for_the_real_endpoint(
    database18: str, authority: trustme.CA, fronts: Callable[..., TlsFront], checker: FakeTokenCheck
) -> None:
    """TLS verifies the endpoint's name, the token is for its own port, and the server is not taken for a local one."""
    front = fronts(authority, admit=checker)
    factory = connect_to(endpoint(database18), iam_auth=True, tunnel=f"localhost:{front.port}")
    with factory.connect() as session:
        facts = read_server_facts(session)
    assert not facts.is_local
    assert f"host={RDS_HOST} hostaddr=127.0.0.1 port={front.port}" in facts.address
    assert checker.refused == []
    assert f"through localhost:{front.port}" in factory.safe_description


def test_every_session_has_a_token_of_its_own(
    database18: str, authority: trustme.CA, fronts: Callable[..., TlsFront], checker: FakeTokenCheck
) -> None:
    """Also the sessions that are made after another was lost: none is kept for 15 minutes."""
    front = fronts(authority, admit=checker)
    made: list[str] = []
    maker = connect_to(endpoint(database18), iam_auth=True, tunnel=f"{front.port}")._make_token
    assert maker is not None

    def make(*, host: str, port: int, user: str) -> str:
        made.append(maker(host=host, port=port, user=user))
        return made[-1]

    factory = ConnectionFactory(endpoint(database18, hostaddr="127.0.0.1", port=front.port), make_token=make)
    for _ in range(3):
        factory.connect().close()
    assert len(made) == len(checker.accepted) == 3


def test_role_that_asks_for_a_password_may_be_read_only_by_default(
    connection18: Connection, database18: str, authority: trustme.CA, fronts: Callable[..., TlsFront]
) -> None:
    """It connects, and is refused with words; of one host nothing is to be chosen by it."""
    connection18.execute("CREATE ROLE read_only_by_default LOGIN")
    connection18.execute("ALTER ROLE read_only_by_default SET default_transaction_read_only = on")
    front = fronts(authority, admit=lambda *_: None)
    given = endpoint(database18, hostaddr="127.0.0.1", port=front.port, user="read_only_by_default", password="any")
    try:
        factory = ConnectionFactory(given)
        with factory.connect() as session:
            assert session.execute("SHOW transaction_read_only").fetchone() == ("on",)
        assert factory.explain_unwritable("load") is not None
    finally:
        connection18.execute("DROP ROLE read_only_by_default")


@pytest.mark.part("rest")
def test_load_runs_with_tokens(
    database18: str, authority: trustme.CA, fronts: Callable[..., TlsFront], checker: FakeTokenCheck, tmp_path: Path
) -> None:
    """All sessions of a load get in."""
    front = fronts(authority, admit=checker)
    file = write_to(tmp_path / "t.csv", "id,name\n" + "".join(f"{number},x\n" for number in range(1000)))
    outcome = load(
        str(file),
        into="t",
        to=endpoint(database18, hostaddr="127.0.0.1", port=front.port),
        create=True,
        sessions=2,
        iam_auth=True,
        retry_for=0,
    )
    assert outcome.rows == 1000
    assert checker.accepted
    assert checker.refused == []


# Ends its own session at the first row that arrives, and lets all others pass.
_LOSE_FIRST = """
CREATE TABLE t (id int);
CREATE SEQUENCE arrivals;
CREATE FUNCTION lose() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF nextval('arrivals') = 1 THEN PERFORM pg_terminate_backend(pg_backend_pid()); END IF;
  RETURN NEW;
END $$;
CREATE TRIGGER lose BEFORE INSERT ON t FOR EACH ROW EXECUTE FUNCTION lose();
"""


@pytest.mark.part("rest")
def test_session_after_a_lost_one_has_a_new_token(
    database18: str, authority: trustme.CA, fronts: Callable[..., TlsFront], checker: FakeTokenCheck, tmp_path: Path
) -> None:
    """A load whose session the server ended goes on with one that is let in by a token of its own."""
    with psycopg.connect(database18, autocommit=True) as admin:
        admin.execute(_LOSE_FIRST)
    front = fronts(authority, admit=checker)
    file = write_to(tmp_path / "t.csv", "id\n1\n2\n")
    made: list[str] = []

    def make(*, host: str, port: int, user: str) -> str:
        made.append(RdsTokens()(host=host, port=port, user=user))
        return made[-1]

    factory = ConnectionFactory(endpoint(database18, hostaddr="127.0.0.1", port=front.port), make_token=make)
    job = LoadJob(targets=(TargetJob(sources=(str(file),), into=parse_table_name("t")),), rules=LoadRules())
    with Loader(factory) as loader:
        outcome = loader.run(loader.plan(job))
    assert outcome.rows == 2
    assert len(made) == len(checker.accepted) >= 2


def test_next_host_is_tried_with_a_token_for_it(
    database18: str, authority: trustme.CA, fronts: Callable[..., TlsFront], checker: FakeTokenCheck
) -> None:
    """After a failover the first host may be down: each has its own token."""
    front = fronts(authority, admit=checker)
    gone = "gone.c9akciq32.eu-west-1.rds.amazonaws.com"
    conninfo = endpoint(database18, host=f"{gone},{RDS_HOST}", hostaddr="127.0.0.1,127.0.0.1", port=f"1,{front.port}")
    connect_to(conninfo, iam_auth=True).connect().close()
    assert [token.partition(":")[0] for token in checker.accepted] == [RDS_HOST]


@pytest.mark.part("rest")
def test_refused_token_is_told_with_what_to_check(
    database18: str, authority: trustme.CA, fronts: Callable[..., TlsFront], checker: FakeTokenCheck
) -> None:
    """The error has the server's words, then role, policy and clock. It does not contain the token."""
    checker.users = {"somebody"}
    front = fronts(authority, admit=checker)
    with pytest.raises(ServerError, match="PAM authentication failed") as caught:
        connect_to(endpoint(database18), iam_auth=True, tunnel=f"localhost:{front.port}").connect()
    words = str(caught.value)
    assert 'GRANT rds_iam TO "postgres";' in words
    assert "arn:aws:rds-db:eu-west-1:ACCOUNT:dbuser:DB_RESOURCE_ID/postgres" in words
    assert "X-Amz" not in words


@pytest.mark.part("rest")
def test_token_of_a_wrong_key_is_refused(
    database18: str,
    authority: trustme.CA,
    fronts: Callable[..., TlsFront],
    checker: FakeTokenCheck,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The fake verifies signatures, so that the tests above say something."""
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "another")
    front = fronts(authority, admit=checker)
    with pytest.raises(ServerError):
        connect_to(endpoint(database18), iam_auth=True, tunnel=f"localhost:{front.port}").connect()
    assert checker.refused
    assert set(checker.refused) == {"signature"}


def test_missing_credentials_are_told(
    database18: str, authority: trustme.CA, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the AWS command line would find none either."""
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    with pytest.raises(ServerError, match="no AWS credentials"):
        connect_to(endpoint(database18), iam_auth=True, tunnel="localhost:1").connect()


def test_password_and_token_exclude_each_other(database18: str, authority: trustme.CA) -> None:
    """One of the two would be ignored."""
    with pytest.raises(UsageError, match="cannot be used with IAM authentication"):
        connect_to(endpoint(database18, password="x"), iam_auth=True).connect()


def test_region_must_be_known(database18: str, authority: trustme.CA, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the endpoint's name, or configured."""
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(UsageError, match="region"):
        connect_to(endpoint(database18, host="db.example.org"), iam_auth=True).connect()


def test_aws_region_is_that_of_a_name_which_does_not_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    """The hint says AWS_REGION, which botocore alone does not know."""
    for name, value in (
        ("AWS_ACCESS_KEY_ID", "AKIATEST"),
        ("AWS_SECRET_ACCESS_KEY", "test"),
        ("AWS_REGION", "eu-north-1"),
    ):
        monkeypatch.setenv(name, value)
    token = RdsTokens()(host="db.example.org", port=5432, user="app")
    assert "%2Feu-north-1%2Frds-db%2F" in token


@pytest.mark.parametrize("options", [{"iam_auth": True}, {"tunnel": "localhost:6000"}])
def test_embedded_server_has_neither_token_nor_tunnel(
    options: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a server's name they are a mistake, and no server is started for it."""
    for name in ("PGHOST", "PGHOSTADDR", "PGPORT", "PGDATABASE", "PGSERVICE"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(UsageError, match="needs a server's name"):
        connect_to(**options)  # type: ignore[arg-type]


@pytest.mark.parametrize("text", ["", "localhost", "localhost:0", "localhost:x", "localhost:99999"])
def test_tunnel_names_a_port(text: str) -> None:
    """Its near end is a host and a port."""
    with pytest.raises(UsageError, match=r'invalid value ".*" for --tunnel'):
        connect_to("host=h", tunnel=text)
