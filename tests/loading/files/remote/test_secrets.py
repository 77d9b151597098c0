"""No secret that is given to penstock comes out of it anywhere: every input holds one, and every output is searched."""

from __future__ import annotations

import base64
import gzip
import json
import os
import subprocess
import sys
import traceback
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from penstock.api.connect import connect_to
from penstock.api.functions import load
from penstock.core.errors import PenstockError
from penstock.core.values.job import LoadJob, TargetJob
from penstock.core.values.names import parse_table_name
from penstock.core.zstd import zstd
from penstock.loading.loader import Loader
from support.parts import rest
from support.tls import RDS_HOST, FakeTokenCheck, TlsFront, amazon_like_authority, write_roots

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from loading.files.remote.conftest import S3, Web
    from support.servers import PgServer

_SPYING = Path(__file__).parents[3] / "support" / "spying"

# What runs penstock with everything that it logs written down.
_LOGGED_RUN = """
import logging, os, sys
handler = logging.FileHandler(os.environ["PENSTOCK_TEST_LOG"])
for name in ("penstock", "psycopg"):
    logging.getLogger(name).addHandler(handler)
    logging.getLogger(name).setLevel(logging.DEBUG)
from penstock.cli.main import main
sys.exit(main(sys.argv[1:]))
"""

# By what a row's arrival looks at the sessions that load it.
_LOOK = """
CREATE TABLE seen (application_name text, query text);
GRANT ALL ON seen TO PUBLIC;
CREATE FUNCTION look() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
BEGIN
  INSERT INTO public.seen SELECT application_name, query FROM pg_stat_activity WHERE datname = current_database();
  RETURN NULL;
END $$;
CREATE TABLE t (id int, name text);
CREATE TRIGGER look AFTER INSERT ON t FOR EACH STATEMENT EXECUTE FUNCTION look();
GRANT ALL ON t TO PUBLIC;
"""


@dataclass
class Planted:
    """The secrets of a test, where they are given, and everything that came out."""

    server: PgServer
    database: str
    folder: Path
    environment: dict[str, str]
    secrets: dict[str, str]
    # How long the server's log was before the test.
    logged_bytes: int
    outputs: dict[str, str] = field(default_factory=dict)

    @property
    def conninfo(self) -> str:
        """Return the connection string with the password, over TCP where it is asked for."""
        return make_conninfo(
            self.server.over_tcp(self.database), passfile="/nowhere", user="planted", password=self.secrets["conninfo"]
        )

    @property
    def uri(self) -> str:
        """Return the same as a URI."""
        given = conninfo_to_dict(self.conninfo)
        word = quote(str(given["password"]), safe="")
        return f"postgresql://planted:{word}@{given['host']}:{given['port']}/{given['dbname']}"

    def run(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run penstock in a process of its own, logging everything, and keep what it said."""
        number = len(self.outputs)
        started, log = self.folder / f"started-{number}", self.folder / f"log-{number}"
        files = {"PENSTOCK_TEST_STARTED": str(started), "PENSTOCK_TEST_LOG": str(log)}
        path = os.pathsep.join([str(_SPYING), *sys.path])
        finished = subprocess.run(
            [sys.executable, "-c", _LOGGED_RUN, *arguments],
            env={**os.environ, **self.environment, **files, **environment, "PYTHONPATH": path},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        for name, text in (("stdout", finished.stdout), ("stderr", finished.stderr)):
            self.outputs[f"{name} of {number} {arguments[:2]}"] = text
        for name, path_of in (("programs started", started), ("log", log)):
            self.outputs[f"{name} of {number}"] = path_of.read_text() if path_of.exists() else ""
        return finished

    def collect_server(self) -> None:
        """Keep all rows of all tables, what sessions were called and ran, and the server's own log."""
        with psycopg.connect(self.database, autocommit=True) as admin:
            tables = admin.execute(
                "SELECT oid::regclass::text FROM pg_class WHERE relkind IN ('r', 'p')"
                " AND relnamespace IN ('penstock'::regnamespace, 'public'::regnamespace)"
            ).fetchall()
            for (name,) in tables:
                rows = admin.execute(f"SELECT to_jsonb(x)::text FROM {name} x").fetchall()
                self.outputs[f"table {name}"] = "\n".join(text for (text,) in rows)
        log = _log_of(self.server).read_bytes()[self.logged_bytes :]
        self.outputs["server log"] = log.decode(errors="replace")

    def find_leaks(self) -> list[str]:
        """Return which secret is in which output, as it is, percent-encoded or in base64."""
        return [
            f"{name} in {where}: {text[max(0, text.find(form) - 300) : text.find(form) + len(form) + 20]}"
            for name, secret in self.secrets.items()
            for where, text in self.outputs.items()
            for form in _forms(secret)
            if form in text
        ]


def _log_of(server: PgServer) -> Path:
    assert server.server is not None
    return server.server.spec.files.log


def _forms(secret: str) -> set[str]:
    shortest = base64.b64encode(secret.encode()).decode().rstrip("=")[:-1]
    return {secret, quote(secret, safe=""), quote(quote(secret, safe=""), safe=""), shortest}


@pytest.fixture
def planted(pg18: PgServer, database18: str, tmp_path: Path, s3: S3) -> Iterator[Planted]:
    """Provide a server with a role, a bucket, and a secret in everything that is configured."""
    if pg18.server is None:
        pytest.skip("reads the server's log")
    secrets = {
        "conninfo": "pw-Conn/9f1c+secret",
        "PGPASSWORD": "pw-Variable/77aa+secret",
        "secret key": "aws-Key/51de+secret",
        "session token": "aws-Session/0b7e+secret",
        "userinfo": "url-Word/33ce+secret",
        "sslpassword": "pw-Key/aa31+secret",
    }
    with psycopg.connect(database18, autocommit=True) as admin:
        admin.execute(_LOOK)
        admin.execute("DROP ROLE IF EXISTS planted")
        password = sql.Literal(secrets["conninfo"])
        admin.execute(sql.SQL("CREATE ROLE planted LOGIN PASSWORD {}").format(password))
        admin.execute(
            sql.SQL("GRANT ALL ON DATABASE {} TO planted").format(
                sql.Identifier(conninfo_to_dict(database18)["dbname"])
            )
        )
    environment = {
        "PGPASSWORD": secrets["PGPASSWORD"],
        "AWS_SECRET_ACCESS_KEY": secrets["secret key"],
        "AWS_SESSION_TOKEN": secrets["session token"],
        "AWS_REGION": "us-east-1",
        "PENSTOCK_HOME": str(tmp_path / "home"),
    }
    yield Planted(pg18, database18, tmp_path, environment, secrets, _log_of(pg18).stat().st_size)
    with psycopg.connect(database18, autocommit=True) as admin:
        admin.execute("DROP OWNED BY planted CASCADE")
        admin.execute("DROP ROLE planted")


def _presign(planted: Planted, s3: S3, key: str) -> str:
    """Return a presigned URL of an object; its signature and its token are secrets from then on."""
    url = s3.client.generate_presigned_url("get_object", Params={"Bucket": "landing", "Key": key})
    url += "&X-Amz-Security-Token=" + quote("url-Token/5e5e+secret", safe="")
    planted.secrets["URL token"] = "url-Token/5e5e+secret"
    planted.secrets[f"signature of {key}"] = url.partition("Signature=")[2].partition("&")[0]
    return url


@pytest.mark.part("rest")
def test_nothing_that_a_load_leaves_holds_a_secret(planted: Planted, s3: S3, web: Web) -> None:
    """Loads, their plans, rejects, ledger, logs, programs and sessions: all that worked or partly did."""
    s3.put("a.csv", b"1,a\n2,b\n")
    s3.put("b.csv.gz", gzip.compress(b"3,c\nbad,d\n4,e\n"))
    web.body = b"5,e\n6,f\n"
    signed = _presign(planted, s3, "a.csv")
    with_word = web.url("data.csv").replace("://", f"://me:{quote(planted.secrets['userinfo'], safe='')}@")
    job = planted.folder / "job.toml"
    job.write_text(
        f'to = "{planted.uri}"\n[[target]]\nsources = ["{signed}", "{with_word}"]\ninto = "t"\nheader=false\n'
    )
    common = ["--into", "t", "--no-header", "--to", planted.conninfo]
    assert planted.run("load", "s3://landing/a.csv", *common, "--plan").returncode == 0
    assert planted.run("load", signed, *common, "--plan", "--json").returncode == 0
    assert planted.run("load", signed, with_word, *common, "--check").returncode == 0
    assert planted.run("load", str(job), "--json").returncode == 0
    done = planted.run("load", "s3://landing/b.csv.gz", signed, *common, "--on-error", "reject", "--again", "--json")
    assert done.returncode == 3
    load_id = json.loads(done.stdout)["load_id"]
    recording = planted.folder / "load.recording"
    assert planted.run("load", signed, with_word, *common, "--again", "--record", str(recording)).returncode == 0
    planted.outputs["recording of a load"] = zstd.decompress(recording.read_bytes()).decode()
    assert "landing/a.csv" in planted.outputs["recording of a load"]
    for command in (
        ["diagnose", str(recording)],
        ["report", str(recording), "-o", str(planted.folder / "report.html")],
    ):
        assert planted.run(*command).returncode == 0
    planted.outputs["report"] = (planted.folder / "report.html").read_text()
    target = ["--to", planted.uri]
    planted.run("load", with_word, *common, "--reject-file", "r.csv", "--on-error", "reject", "--again")
    for command in (["loads"], ["loads", "show", load_id], ["rejects", load_id], ["retry", load_id]):
        planted.run(*command, *target)
        planted.run(*command, *target, "--json")
    planted.run("resume", load_id, *target)
    planted.collect_server()
    assert "COPY" in planted.outputs["table seen"]
    assert "landing/a.csv" in planted.outputs["table penstock.loads"]
    leaks = planted.find_leaks()
    assert not leaks, "\n".join(leaks)


@pytest.mark.part("rest")
def test_no_failure_tells_a_secret(
    planted: Planted, s3: S3, web: Web, some: Callable[[Sequence[list[str]], int], list[list[str]]]
) -> None:
    """Errors about what is refused, mistyped, unreachable or broken do not contain the given secrets."""
    s3.put("a.csv", b"1,a\nbad,b\n")
    signed = _presign(planted, s3, "a.csv")
    word = quote(planted.secrets["userinfo"], safe="")
    to = ["--to", planted.conninfo]
    into = ["--into", "t", "--no-header", "--retry-for", "0"]
    password, key = planted.secrets["conninfo"], planted.secrets["sslpassword"]
    local = conninfo_to_dict(planted.conninfo)
    at = f"{local['host']}:{local['port']}"
    quoted = quote(password, safe="")
    job = planted.folder / "broken.toml"
    job.write_text(f'to = "{planted.uri}"\npassword = "{password}"\n[[target]]\nsources = 7\n')
    torn = planted.folder / "torn.toml"
    torn.write_text(f'to = "{planted.uri}\n[[target]]\n')
    failing = [
        ["load", signed, *into, *to],
        ["load", signed, "--into", "nowhere", *to],
        ["load", signed.replace("a.csv", "none.csv"), *into, *to],
        ["load", signed.replace("http://127.0.0.1", "http://none.invalid"), *into, *to],
        ["load", signed.replace("http://", "https://"), *into, *to],
        ["load", web.url("denied/x.csv").replace("://", f"://me:{word}@"), *into, *to],
        ["load", web.url("drop/noranges/x.csv").replace("://", f"://me:{word}@"), *into, *to],
        ["load", f"htps:/me:{word}@host/x", *into, *to],
        ["load", signed, *into, "--to", make_conninfo(planted.conninfo, host="none.invalid")],
        ["load", signed, *into, "--to", make_conninfo(planted.conninfo, port=1, connect_timeout=1)],
        ["load", signed, *into, "--to", make_conninfo(planted.conninfo, user="nobody here", dbname="none")],
        ["load", signed, *into, "--to", make_conninfo(planted.conninfo, dbname="none")],
        ["load", signed, *into, "--to", make_conninfo(planted.conninfo, sslpassword=key, sslmode="require")],
        ["load", signed, *into, "--to", planted.conninfo + f" dbname='{planted.uri}'"],
        ["load", signed, *into, "--to", f"postgresql://planted:{quoted}@{at}/postgres?passwrod={quoted}"],
        ["load", signed, *into, "--to", f"postgresql://planted:{quoted}%zz@{at}/postgres"],
        ["load", signed, *into, "--to", f"postgresql:planted:{quoted}@{at}/postgres"],
        ["load", signed, *into, "--to", f"postgresql://planted:{password}@{at}/postgres"],
        ["load", signed, *into, *to, "--role", "nobody"],
        ["load", signed, planted.uri, *into, *to],
        ["load", *into, *to, "--delimiter", planted.uri, signed],
        ["load", str(job)],
        ["load", str(torn)],
        ["load", str(job), *into[2:], *to],
        [planted.uri],
        ["loads", planted.uri],
        ["loads", "show", planted.uri, "--json"],
        ["loads", "show", planted.uri, *to, "--json"],
        ["loads", "--to", f"postgresql:planted:{quoted}@{at}/postgres"],
        ["resume", planted.uri, *to],
        ["rejects", "--to", make_conninfo(planted.conninfo, dbname="none"), "x"],
        ["load", signed, "--into", planted.uri, *to],
        ["load", signed, *into, *to, "--sessions", planted.uri],
        ["load", signed, *into, *to, "--ledger-schema", planted.uri],
        ["load", signed, *into, *to, "--unknown", planted.uri],
        ["load", signed, *into, f"--too={planted.uri}"],
    ]
    codes = {tuple(arguments): planted.run(*arguments).returncode for arguments in some(failing, 18)}
    codes[("PGDATABASE",)] = planted.run("load", signed, *into, PGDATABASE=planted.uri, PGHOST="127.0.0.1").returncode
    assert [arguments for arguments, code in codes.items() if code == 0] == []
    assert [arguments for arguments, code in codes.items() if code == 70] == []
    leaks = planted.find_leaks()
    assert not leaks, "\n".join(leaks)


def test_no_recording_holds_a_secret(planted: Planted) -> None:
    """Neither those of the connection nor those in statements that are seen, cut, quoted or in comments."""
    secret = planted.secrets["statement"] = "st-Secret/99ab+secret"
    statements = [
        f"ALTER ROLE planted PASSWORD '{secret}'",
        f"SELECT $$ {secret} $$, E'\\'{secret}', 'it''s {secret}' -- {secret}",
        f"SELECT '{'x' * 1000}', '{secret * 10}'",
    ]
    path = planted.folder / "recording"
    with psycopg.connect(planted.conninfo) as seen:
        for number, statement in enumerate(statements):
            seen.execute(statement.encode())
            target = ["--to", planted.uri, "--for", "0.3", "--interval", "0.1"]
            assert planted.run("watch", *target, "--record", f"{path}-{number}", "--json").returncode == 0
            planted.outputs[f"recording {number}"] = zstd.decompress(Path(f"{path}-{number}").read_bytes()).decode()
            assert "idle in transaction" in planted.outputs[f"recording {number}"]
            for command in (["diagnose"], ["commits", "--recording"]):
                planted.run(*command, f"{path}-{number}", "--json")
        seen.rollback()
    leaks = planted.find_leaks()
    assert not leaks, "\n".join(leaks)


@pytest.mark.part("rest")
def test_token_is_nowhere_but_on_its_way_to_the_server(planted: Planted, s3: S3, tmp_path: Path) -> None:
    """Tokens of IAM authentication are passwords. Neither an accepted nor a refused token is shown."""
    s3.put("a.csv", b"1,a\n2,b\n")
    authority = amazon_like_authority()
    check = FakeTokenCheck(
        host=RDS_HOST, port=5432, access_key="AKIAEXAMPLE", secret_key=planted.secrets["secret key"], users={"planted"}
    )
    tokens: list[str] = []

    def admit(user: str, token: str) -> str | None:
        tokens.append(token)
        return check(user, token)

    given = conninfo_to_dict(planted.database)
    front = TlsFront(authority, RDS_HOST, f"{given['host']}/.s.PGSQL.{given['port']}", admit=admit)
    roots = str(write_roots(authority, tmp_path / "roots.pem"))
    common = ["--iam-auth", "--tunnel", f"localhost:{front.port}", "--to"]
    to = make_conninfo(host=RDS_HOST, user="planted", dbname=given["dbname"])
    refused = make_conninfo(to, user="nobody")
    into = ["s3://landing/a.csv", "--into", "t", "--no-header", "--retry-for", "0"]
    codes = [
        planted.run("load", *into, *common, to, "--json", PGSSLROOTCERT=roots).returncode,
        planted.run("loads", *common, to, PGSSLROOTCERT=roots).returncode,
        planted.run("load", *into, *common, refused, "--json", PGSSLROOTCERT=roots).returncode,
        planted.run("load", *into, *common, to, HOME="/nowhere").returncode,
    ]
    front.close()
    assert codes == [0, 0, 7, 7]
    assert len(tokens) >= 3
    planted.secrets |= {f"token {number}": token for number, token in enumerate(tokens)}
    planted.secrets |= {f"signature {n}": token.partition("Signature=")[2] for n, token in enumerate(tokens)}
    planted.collect_server()
    assert "COPY" in planted.outputs["table seen"]
    leaks = planted.find_leaks()
    assert not leaks, "\n".join(leaks)


@pytest.mark.parametrize("fault", [rest("missing"), rest("denied"), rest("unreachable"), "cut", "password"])
def test_traceback_of_a_library_user_tells_no_secret(planted: Planted, s3: S3, web: Web, fault: str) -> None:
    """Causes of an error are printed with it where nobody catches it: they hold no secret either."""
    s3.put("a.csv", b"1,a\n")
    signed = _presign(planted, s3, "a.csv")
    with_word = web.url("drop/noranges/x.csv").replace("://", f"://me:{quote(planted.secrets['userinfo'], safe='')}@")
    source, to = {
        "missing": (signed.replace("a.csv", "none.csv"), planted.conninfo),
        "denied": (web.url("denied/x.csv") + "?" + signed.partition("?")[2], planted.conninfo),
        "unreachable": (signed.replace(f":{s3.port}", ":1"), planted.conninfo),
        "cut": (with_word, planted.conninfo),
        "password": (signed, make_conninfo(planted.conninfo, user="nobody")),
    }[fault]
    with pytest.raises(PenstockError) as caught:
        load(source, into="t", to=to, retry_for=0)
    planted.outputs["traceback"] = "".join(traceback.format_exception(caught.value))
    planted.outputs["representation"] = repr(caught.value)
    leaks = planted.find_leaks()
    assert not leaks, "\n".join(leaks)


def test_what_is_passed_around_shows_no_secret(planted: Planted, s3: S3) -> None:
    """Jobs, plans and factories land in other people's logs by their repr."""
    s3.put("a.csv", b"1,a\n")
    signed = _presign(planted, s3, "a.csv")
    job = LoadJob(targets=(TargetJob(sources=(signed,), into=parse_table_name("t")),))
    with Loader(connect_to(planted.conninfo)) as loader:
        planted.outputs["representations"] = f"{job!r} {loader.plan(job)!r} {connect_to(planted.conninfo)!r}"
    leaks = planted.find_leaks()
    assert not leaks, "\n".join(leaks)
