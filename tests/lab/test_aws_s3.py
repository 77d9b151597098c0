"""aws_s3 in labs: the functions of RDS, with their overloads, options, results and errors."""

from __future__ import annotations

import contextlib
import gzip
import http.client
import re
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import psycopg
import pytest
from psycopg import sql

from penstock.cli.main import main
from penstock_lab.datasets.writer import write_imdb
from support.s3_lab import IMPORT

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator
    from pathlib import Path

    from support.s3_lab import S3Lab

pytestmark = pytest.mark.part("rest")

_ROWS = b"1,one\n2,two\n"


def _rows(session: psycopg.Connection, query: str = "SELECT * FROM t ORDER BY 1") -> list[tuple[object, ...]]:
    return session.execute(query).fetchall()  # type: ignore[call-overload,no-any-return]


def test_the_published_statements_load_imdb_data_unchanged(s3_lab: S3Lab, tmp_path: Path) -> None:
    """As the article has them, with gzip objects of Content-Encoding gzip."""
    (file,) = write_imdb(tmp_path, scale=0.0001, tables=["title.principals"])
    s3_lab.put("title.principals.tsv.gz", file.path.read_bytes(), encoding="gzip")
    with psycopg.connect(s3_lab.conninfo, autocommit=True) as session:
        session.execute("CREATE SCHEMA staging")
        session.execute(
            "CREATE TABLE staging.title_principals (tconst text, ordering text, nconst text, category text, job text,"
            " characters text)"
        )
        said = session.execute(
            f"""SELECT aws_s3.table_import_from_s3(
                'staging.title_principals', '',
                '(format csv, header true, delimiter E''\\t'', quote E''\\x01'', null ''\\N'')',
                aws_commons.create_s3_uri('{s3_lab.bucket}', 'title.principals.tsv.gz', 'us-east-1'))"""  # type: ignore[arg-type]
        ).fetchone()
        where = f"from file title.principals.tsv.gz of {file.size_bytes} bytes"
        assert said == (f'{file.rows} rows imported into relation "staging.title_principals" {where}',)
        with gzip.open(file.path, "rt") as lines:
            next(lines)
            expected = [
                tuple(None if cell == r"\N" else cell for cell in line.rstrip("\n").split("\t")) for line in lines
            ]
        assert sorted(_rows(session, "SELECT * FROM staging.title_principals"), key=str) == sorted(expected, key=str)


def test_every_overload_imports(session: psycopg.Connection, s3_lab: S3Lab) -> None:
    """By position and by the names of the arguments."""
    s3_lab.put("k.csv", _ROWS)
    uri = f"aws_commons.create_s3_uri('{s3_lab.bucket}', 'k.csv', 'us-east-1')"
    keys = "aws_commons.create_aws_credentials('id', 'secret', '')"
    texts = f"'{s3_lab.bucket}', 'k.csv', 'us-east-1'"
    named = f"bucket => '{s3_lab.bucket}', file_path => 'k.csv', region => 'us-east-1'"
    first = "table_name => 't', column_list => 'a, b', options => '(format csv)'"
    calls = [
        f"'t', 'a, b', '(format csv)', {uri}",
        f"'t', 'a, b', '(format csv)', {uri}, {keys}",
        f"'t', 'a, b', '(format csv)', {texts}",
        f"'t', 'a, b', '(format csv)', {texts}, 'id', 'secret'",
        f"'t', 'a, b', '(format csv)', {texts}, 'id', 'secret', 'token'",
        f"{first}, s3_info => {uri}, credentials => {keys}",
        f"{first}, {named}, access_key => 'id', secret_key => 'secret', session_token => 'token'",
    ]
    for call in calls:
        said = session.execute(f"SELECT aws_s3.table_import_from_s3({call})").fetchone()  # type: ignore[arg-type]
        assert said == ('2 rows imported into relation "t" from file k.csv of 12 bytes',)
    assert len(_rows(session)) == 2 * len(calls)
    assert not s3_lab.has_calls()


@pytest.mark.parametrize(
    ("options", "body"),
    [
        ("(format csv)", _ROWS),
        ("format csv, header true", b"a,b\n" + _ROWS),
        ("(FORMAT 'csv', HEADER, FORCE_NOT_NULL (b, \"a\"))", b"x,y\n" + _ROWS),
        ("(delimiter E'\\t')", b"1\tone\n2\ttwo\n"),
        ("(format csv, delimiter ';', quote '''', null '\\N')", b"1;'one'\n2;two\n"),
        ("DELIMITER ',' CSV HEADER", b"a,b\n" + _ROWS),
        ("csv quote as '\"' force not null a, b", _ROWS),
        ("", b"1\tone\n2\ttwo\n"),
        ("  \n", b"1\tone\n2\ttwo\n"),
        ("(encoding 'LATIN1', format csv)", _ROWS),
    ],
)
def test_options_are_those_of_copy(session: psycopg.Connection, s3_lab: S3Lab, options: str, body: bytes) -> None:
    """In both of its syntaxes; parentheses may be missing."""
    s3_lab.put("k.csv", body)
    s3_lab.import_into(session, options=options)
    assert _rows(session) == [(1, "one"), (2, "two")]


def test_names_are_written_as_in_sql(session: psycopg.Connection, s3_lab: S3Lab) -> None:
    """Folded unless quoted, with a schema or by the search path."""
    s3_lab.put("k.csv", _ROWS)
    session.execute('CREATE SCHEMA "S q"')
    session.execute('CREATE TABLE "S q"."T""x" (a int, "B, c" text)')
    s3_lab.import_into(session, table='"S q"."T""x"', columns='A , "B, c"')
    session.execute('SET search_path = "S q"')
    s3_lab.import_into(session, table='"T""x"', columns='"B, c"', options="(format csv, delimiter '|')")
    assert len(_rows(session, 'SELECT * FROM "T""x"')) == 4
    s3_lab.import_into(session, table="PUBLIC.T")


@pytest.mark.parametrize(
    ("passed", "named"),
    [
        ({"table": None}, "table_name"),
        ({"table": ""}, "table_name"),
        ({"columns": None}, "column_list"),
        ({"options": None}, "options"),
    ],
)
def test_null_and_empty_arguments_are_refused_by_name(
    session: psycopg.Connection, s3_lab: S3Lab, passed: dict[str, None], named: str
) -> None:
    """Before anything is read."""
    with pytest.raises(psycopg.errors.NullValueNotAllowed, match=named):
        s3_lab.import_into(session, **passed)


@pytest.mark.parametrize(
    ("call", "named"),
    [
        ("NULL::aws_commons._s3_uri_1", "bucket"),
        ("aws_commons.create_s3_uri('lab', '', 'us-east-1')", "file_path"),
        ("aws_commons.create_s3_uri(NULL, 'k', 'us-east-1')", "bucket"),
        ("aws_commons.create_s3_uri('lab', 'k', 'us-east-1'), NULL", "access_key"),
        ("'lab', 'k', 'us-east-1', 'id'", "secret key"),
        ("'lab', NULL, 'us-east-1'", "file_path"),
    ],
)
def test_null_places_and_half_credentials_are_refused(
    session: psycopg.Connection, s3_lab: S3Lab, call: str, named: str
) -> None:
    """And no file of the call is left."""
    with pytest.raises(psycopg.errors.NullValueNotAllowed, match=named):
        session.execute(f"SELECT aws_s3.table_import_from_s3('t', '', '', {call})")  # type: ignore[arg-type]
    assert not s3_lab.has_calls()


def test_a_missing_region_is_that_of_the_setting(session: psycopg.Connection, s3_lab: S3Lab) -> None:
    """aws_s3.region; without it, the argument is missing."""
    s3_lab.put("k.csv", _ROWS)
    call = f"SELECT aws_s3.table_import_from_s3('t', '', '(format csv)', '{s3_lab.bucket}', 'k.csv', NULL)"
    session.execute(call)  # type: ignore[arg-type]
    assert len(_rows(session)) == 2
    session.execute("SET aws_s3.region = ''")
    with pytest.raises(psycopg.errors.NullValueNotAllowed, match="region"):
        session.execute(call)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("bucket", "key", "region", "said"),
    [
        ("no-such-bucket", "k.csv", "us-east-1", "does not exist"),
        ("lab", "no-such-key", "us-east-1", "does not exist"),
        ("lab", "k.csv", "eu-west-1", "could not read"),
        ("not a bucket/..", "k.csv", "us-east-1", "s3://not a bucket/"),
        ("not a bucket", "k.csv", "us-east-1", "does not exist"),
        ("../lab", "k.csv", "us-east-1", "does not exist"),
        ("lab?x", "k.csv", "us-east-1", "does not exist"),
        ("lab#", "k.csv", "us-east-1", "does not exist"),
        ("lab", "/k.csv", "us-east-1", "begins or ends with /"),
        ("lab", "k.csv/", "us-east-1", "begins or ends with /"),
    ],
)
def test_a_wrong_place_is_an_error_that_names_it(
    session: psycopg.Connection, s3_lab: S3Lab, bucket: str, key: str, region: str, said: str
) -> None:
    """With SQLSTATE 38000 and a hint, and no row."""
    s3_lab.put("k.csv", _ROWS)
    with pytest.raises(psycopg.errors.ExternalRoutineException, match=said) as caught:
        session.execute(IMPORT, ("t", "", "(format csv)", bucket, key, region))
    assert caught.value.diag.message_hint
    assert _rows(session) == []
    assert not s3_lab.has_calls()


def test_an_endpoint_that_does_not_answer_is_an_error(session: psycopg.Connection, s3_lab: S3Lab) -> None:
    """aws_s3.endpoint_url leads elsewhere."""
    session.execute("SET aws_s3.endpoint_url = 'http://127.0.0.1:1'")
    with pytest.raises(psycopg.errors.ExternalRoutineException, match="could not read") as caught:
        s3_lab.import_into(session)
    assert "127.0.0.1:1" in (caught.value.diag.message_detail or "")


def test_gzip_needs_its_content_encoding_as_on_rds(session: psycopg.Connection, s3_lab: S3Lab) -> None:
    """Otherwise its bytes are COPY's."""
    s3_lab.put("k.csv", gzip.compress(_ROWS))
    with pytest.raises(psycopg.errors.CharacterNotInRepertoire):
        s3_lab.import_into(session)
    s3_lab.put("k.csv", gzip.compress(_ROWS), encoding="gzip")
    s3_lab.import_into(session)
    assert _rows(session) == [(1, "one"), (2, "two")]


def test_a_truncated_object_imports_no_row(session: psycopg.Connection, s3_lab: S3Lab, rng: random.Random) -> None:
    """Although all its records had arrived: the gzip trailer is missing."""
    body = b"".join(b"%d,%d\n" % (number, rng.getrandbits(60)) for number in range(20_000))
    s3_lab.put("k.csv", gzip.compress(body)[:-4], encoding="gzip")
    with pytest.raises(psycopg.errors.ExternalRoutineException, match="truncated"):
        s3_lab.import_into(session)
    assert _rows(session) == []
    s3_lab.put("k.csv", gzip.compress(body), encoding="gzip")
    assert s3_lab.import_into(session).startswith("20000 rows")


def test_an_error_of_copy_keeps_its_words(session: psycopg.Connection, s3_lab: S3Lab) -> None:
    """SQLSTATE and line are those of COPY."""
    s3_lab.put("k.csv", b"1,one\nx,two\n")
    with pytest.raises(psycopg.errors.InvalidTextRepresentation) as caught:
        s3_lab.import_into(session)
    assert "COPY t, line 2, column a" in (caught.value.diag.context or "")
    assert not s3_lab.has_calls()


def test_copy_may_end_before_the_object(session: psycopg.Connection, s3_lab: S3Lab) -> None:
    """At a line with COPY's end-of-data marker, as with a file."""
    s3_lab.put("k.csv", b"1\tone\n\\.\n" + b"2\ttwo\n" * 100_000)
    said = s3_lab.import_into(session, options="")
    assert re.fullmatch(r'1 rows imported into relation "t" from file k\.csv of \d+ bytes', said)
    assert _rows(session) == [(1, "one")]
    assert not s3_lab.has_calls()


def test_an_import_belongs_to_its_transaction(session: psycopg.Connection, s3_lab: S3Lab) -> None:
    """A rollback undoes it; after an error, a savepoint's transaction goes on."""
    s3_lab.put("k.csv", _ROWS)
    with session.transaction(force_rollback=True):
        s3_lab.import_into(session)
    with session.transaction():
        with pytest.raises(psycopg.errors.ExternalRoutineException), session.transaction():
            s3_lab.import_into(session, "nope")
        s3_lab.import_into(session)
    assert len(_rows(session)) == 2


def test_a_role_needs_the_right_to_run_programs_and_to_insert(session: psycopg.Connection, s3_lab: S3Lab) -> None:
    """Nothing runs with another's rights."""
    s3_lab.put("k.csv", _ROWS)
    role = sql.Identifier(f"importer of {session.info.dbname}")
    uri = f"aws_commons.create_s3_uri('{s3_lab.bucket}', 'k.csv', 'us-east-1')"
    call = f"""SELECT aws_s3.table_import_from_s3('t', '', '(format csv)', {uri},
        aws_commons.create_aws_credentials('id', 'planted', ''))"""
    session.execute(sql.SQL("CREATE ROLE {}").format(role))
    session.execute(sql.SQL("SET ROLE {}").format(role))
    with pytest.raises(psycopg.errors.InsufficientPrivilege, match="schema aws_"):
        session.execute(call)  # type: ignore[arg-type]
    session.execute("RESET ROLE")
    session.execute(sql.SQL("GRANT USAGE ON SCHEMA aws_s3, aws_commons TO {}").format(role))
    session.execute(sql.SQL("GRANT INSERT ON t TO {}").format(role))
    session.execute(sql.SQL("SET ROLE {}").format(role))
    with pytest.raises(psycopg.errors.InsufficientPrivilege, match="program"):
        session.execute(call)  # type: ignore[arg-type]
    session.execute("RESET ROLE")
    session.execute(sql.SQL("GRANT pg_execute_server_program TO {}").format(role))
    session.execute(sql.SQL("SET ROLE {}").format(role))
    session.execute(call)  # type: ignore[arg-type]
    session.execute("RESET ROLE")
    session.execute(sql.SQL("REVOKE INSERT ON t FROM {}").format(role))
    session.execute(sql.SQL("SET ROLE {}").format(role))
    with pytest.raises(psycopg.errors.InsufficientPrivilege, match="table t"):
        session.execute(call)  # type: ignore[arg-type]
    session.execute("RESET ROLE")
    assert not s3_lab.has_calls()
    assert len(_rows(session)) == 2


def test_functions_run_with_the_callers_rights(session: psycopg.Connection) -> None:
    """No function is SECURITY DEFINER."""
    assert (
        _rows(
            session,
            "SELECT proname FROM pg_proc WHERE pronamespace::regnamespace::text LIKE 'aws%' AND prosecdef",
        )
        == []
    )


def test_export_says_that_it_is_absent(session: psycopg.Connection) -> None:
    """Both overloads."""
    for call in (
        "'SELECT 1', aws_commons.create_s3_uri('lab', 'k', 'us-east-1'), options := 'format csv'",
        "'SELECT 1', 'lab', 'k', 'us-east-1'",
    ):
        with pytest.raises(psycopg.errors.FeatureNotSupported, match="export to S3"):
            session.execute(f"SELECT * FROM aws_s3.query_export_to_s3({call})")  # type: ignore[arg-type]


def test_wrong_credentials_are_an_error(session: psycopg.Connection, s3_lab: S3Lab) -> None:
    """Those of the call, and the lab's own if the call has none."""
    s3_lab.put("k.csv", _ROWS)
    keys = "aws_commons.create_aws_credentials('AKIAWRONG', 'wrong', '')"
    uri = f"aws_commons.create_s3_uri('{s3_lab.bucket}', 'k.csv', 'us-east-1')"
    with _checked_credentials(s3_lab):
        for call in (f"{uri}, {keys}", uri):
            with pytest.raises(psycopg.errors.ExternalRoutineException, match="not allowed to read"):
                session.execute(f"SELECT aws_s3.table_import_from_s3('t', '', '(format csv)', {call})")  # type: ignore[arg-type]
    assert _rows(session) == []
    assert not s3_lab.has_calls()


def test_a_read_only_transaction_imports_nothing(session: psycopg.Connection, s3_lab: S3Lab) -> None:
    """And leaves no file of the call."""
    with pytest.raises(psycopg.errors.ReadOnlySqlTransaction), session.transaction():
        session.execute("SET TRANSACTION READ ONLY")
        s3_lab.import_into(session)
    assert not s3_lab.has_calls()


@pytest.mark.pg(">= 18")
def test_imdb_data_is_written_to_the_bucket(
    session: psycopg.Connection, s3_lab: S3Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Made up, or files that exist, with the Content-Encoding that the import needs."""
    for name, value in s3_lab.environment.items():
        monkeypatch.setenv(name, value)
    arguments = ["lab", "imdb", "--tables", "title.ratings"]
    assert main([*arguments, "--scale", "0.0001", "--out", f"s3://{s3_lab.bucket}/made/"]) == 0
    (file,) = write_imdb(tmp_path, scale=0.0001, tables=["title.ratings"])
    assert main([*arguments, "--files", str(tmp_path), "--out", f"s3://{s3_lab.bucket}/real"]) == 0
    session.execute("CREATE TABLE ratings (a text, b float, c int)")
    for folder in ("made", "real"):
        key = f"{folder}/title.ratings.tsv.gz"
        said = s3_lab.import_into(session, key, table="ratings", options="(format csv, header true, delimiter E'\\t')")
        assert said == f'{file.rows} rows imported into relation "ratings" from file {key} of {file.size_bytes} bytes'
    assert main([*arguments, "--scale", "0.0001", "--out", "s3://no-such-bucket/x"]) == 8


@contextlib.contextmanager
def _checked_credentials(s3_lab: S3Lab) -> Iterator[None]:
    """Let moto refuse requests of keys that it has not given out."""
    _let_requests_pass(s3_lab, b"0")
    try:
        yield
    finally:
        _let_requests_pass(s3_lab, b"inf")


def _let_requests_pass(s3_lab: S3Lab, count: bytes) -> None:
    """Let moto answer so many requests before it checks their credentials."""
    connection = http.client.HTTPConnection("127.0.0.1", urlsplit(s3_lab.environment["AWS_ENDPOINT_URL"]).port)
    connection.request("POST", "/moto-api/reset-auth", count, {"Content-Type": "text/plain"})
    assert connection.getresponse().status == 200
    connection.close()
