"""aws_s3 in labs: the functions of RDS, their results and errors, and that nothing passed to them is run or shown."""

from __future__ import annotations

import contextlib
import gzip
import os
import socket
import stat
import subprocess
import threading
import time
from typing import TYPE_CHECKING, TypeVar

import psutil
import psycopg
import pytest
from psycopg import sql

from penstock.lab.datasets.imdb import write_imdb

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from support.s3_lab import S3Lab

_Found = TypeVar("_Found")

_ROWS = b"1,one\n2,two\n"

_IMPORT = "SELECT aws_s3.table_import_from_s3(%s, %s, %s, aws_commons.create_s3_uri(%s, %s, %s))"


@pytest.fixture
def session(s3_lab: S3Lab) -> Iterator[psycopg.Connection]:
    """Provide a session with a table t of two columns."""
    with psycopg.connect(s3_lab.conninfo, autocommit=True) as opened:
        opened.execute("CREATE TABLE t (a int, b text)")
        yield opened


def _import(
    session: psycopg.Connection,
    s3_lab: S3Lab,
    key: str = "k.csv",
    *,
    table: str | None = "t",
    columns: str | None = "",
    options: str | None = "(format csv)",
) -> str:
    row = session.execute(_IMPORT, (table, columns, options, s3_lab.bucket, key, s3_lab.region)).fetchone()
    assert row is not None
    return str(row[0])


def _rows(session: psycopg.Connection, query: str = "SELECT * FROM t ORDER BY 1") -> list[tuple[object, ...]]:
    return session.execute(query).fetchall()  # type: ignore[call-overload,no-any-return]


def _leaves_nothing(s3_lab: S3Lab) -> bool:
    return not list(s3_lab.calls.iterdir())


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
    assert _leaves_nothing(s3_lab)


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
    _import(session, s3_lab, options=options)
    assert _rows(session) == [(1, "one"), (2, "two")]


def test_names_are_written_as_in_sql(session: psycopg.Connection, s3_lab: S3Lab) -> None:
    """Folded unless quoted, with a schema or by the search path."""
    s3_lab.put("k.csv", _ROWS)
    session.execute('CREATE SCHEMA "S q"')
    session.execute('CREATE TABLE "S q"."T""x" (a int, "B, c" text)')
    _import(session, s3_lab, table='"S q"."T""x"', columns='A , "B, c"')
    session.execute('SET search_path = "S q"')
    _import(session, s3_lab, table='"T""x"', columns='"B, c"', options="(format csv, delimiter '|')")
    assert len(_rows(session, 'SELECT * FROM "T""x"')) == 4
    _import(session, s3_lab, table="PUBLIC.T")


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
        _import(session, s3_lab, **passed)


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
    assert _leaves_nothing(s3_lab)


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
    ],
)
def test_a_wrong_place_is_an_error_that_names_it(
    session: psycopg.Connection, s3_lab: S3Lab, bucket: str, key: str, region: str, said: str
) -> None:
    """With SQLSTATE 38000 and a hint, and no row."""
    s3_lab.put("k.csv", _ROWS)
    with pytest.raises(psycopg.errors.ExternalRoutineException, match=said) as caught:
        session.execute(_IMPORT, ("t", "", "(format csv)", bucket, key, region))
    assert caught.value.diag.message_hint
    assert _rows(session) == []
    assert _leaves_nothing(s3_lab)


def test_an_endpoint_that_does_not_answer_is_an_error(session: psycopg.Connection, s3_lab: S3Lab) -> None:
    """aws_s3.endpoint_url leads elsewhere."""
    session.execute("SET aws_s3.endpoint_url = 'http://127.0.0.1:1'")
    with pytest.raises(psycopg.errors.ExternalRoutineException, match="could not read") as caught:
        _import(session, s3_lab)
    assert "127.0.0.1:1" in (caught.value.diag.message_detail or "")


def test_gzip_needs_its_content_encoding_as_on_rds(session: psycopg.Connection, s3_lab: S3Lab) -> None:
    """Otherwise its bytes are COPY's."""
    s3_lab.put("k.csv", gzip.compress(_ROWS))
    with pytest.raises(psycopg.errors.CharacterNotInRepertoire):
        _import(session, s3_lab)
    s3_lab.put("k.csv", gzip.compress(_ROWS), encoding="gzip")
    _import(session, s3_lab)
    assert _rows(session) == [(1, "one"), (2, "two")]


def test_a_truncated_object_imports_no_row(session: psycopg.Connection, s3_lab: S3Lab, rng: random.Random) -> None:
    """Although all its records had arrived: the gzip trailer is missing."""
    body = b"".join(b"%d,%d\n" % (number, rng.getrandbits(60)) for number in range(20_000))
    s3_lab.put("k.csv", gzip.compress(body)[:-4], encoding="gzip")
    with pytest.raises(psycopg.errors.ExternalRoutineException, match="truncated"):
        _import(session, s3_lab)
    assert _rows(session) == []
    s3_lab.put("k.csv", gzip.compress(body), encoding="gzip")
    assert _import(session, s3_lab).startswith("20000 rows")


def test_an_error_of_copy_keeps_its_words(session: psycopg.Connection, s3_lab: S3Lab) -> None:
    """SQLSTATE and line are those of COPY."""
    s3_lab.put("k.csv", b"1,one\nx,two\n")
    with pytest.raises(psycopg.errors.InvalidTextRepresentation) as caught:
        _import(session, s3_lab)
    assert "COPY t, line 2, column a" in (caught.value.diag.context or "")
    assert _leaves_nothing(s3_lab)


def test_an_import_belongs_to_its_transaction(session: psycopg.Connection, s3_lab: S3Lab) -> None:
    """A rollback undoes it; after an error, a savepoint's transaction goes on."""
    s3_lab.put("k.csv", _ROWS)
    with session.transaction(force_rollback=True):
        _import(session, s3_lab)
    with session.transaction():
        with pytest.raises(psycopg.errors.ExternalRoutineException), session.transaction():
            _import(session, s3_lab, "nope")
        _import(session, s3_lab)
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
    assert _leaves_nothing(s3_lab)
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


_HOSTILE = [
    "x'; CREATE TABLE pwned (); --",
    "t (a) FROM PROGRAM 'touch {mark}' --",
    "$(touch {mark})",
    "`touch {mark}`",
    "x\n touch {mark}\n",
    "x'\n; touch {mark}; '",
    "'; touch {mark}; echo '",
    "\\'; touch {mark}; \\'",
    '"; touch {mark}; "',
    "| touch {mark}",
    "../../../{mark}",
    "&& touch {mark} #",
    "--help",
    "%27; touch {mark}",
]
_HOSTILE_OPTIONS = [
    *_HOSTILE,
    "(format csv) WHERE pg_read_file('/etc/passwd') IS NOT NULL",
    "(format csv) FROM PROGRAM 'touch {mark}'",
    "(program 'touch {mark}')",
    "(format csv); COPY t FROM PROGRAM 'touch {mark}'",
    "csv) FROM PROGRAM 'touch {mark}' WITH (header",
    "csv) WHERE (1 = 1",
    "csv WHERE true",
    "delimiter ',' program 'touch {mark}'",
    "(null $$x$$)",
    "(null 'x\\'', delimiter '); COPY t FROM PROGRAM ''touch {mark}''; --')",
    "(null E'x\\', delimiter '); COPY t FROM PROGRAM 'touch {mark}'; --')",
    "(null U&'\\0027')",
    "(format csv) -- ",
    "(format csv /* )",
    "(((",
    ")",
]


@pytest.mark.parametrize("settings", ["", "SET standard_conforming_strings = off; SET backslash_quote = on"])
def test_nothing_that_is_passed_is_run(session: psycopg.Connection, s3_lab: S3Lab, settings: str) -> None:
    """Neither by the server nor by a shell, in any argument."""
    s3_lab.put("k.csv", _ROWS)
    session.execute(settings or "SELECT 1")  # type: ignore[arg-type]
    # The server's account can write there.
    mark = s3_lab.calls / "mark"
    tables = set(_rows(session, "SELECT oid FROM pg_class"))
    arguments = ("t", "", "(format csv)", s3_lab.bucket, "k.csv", s3_lab.region)
    # Table, columns and options each by itself. The others each start a process, so all of them are in one text.
    tries = [(place, text) for place in range(2) for text in _HOSTILE]
    tries += [(2, text) for text in _HOSTILE_OPTIONS] + [(place, " ".join(_HOSTILE)) for place in (3, 4, 5)]
    for place, text in tries:
        passed = list(arguments)
        passed[place] = text.replace("{mark}", str(mark))
        with pytest.raises(psycopg.Error):
            session.execute(_IMPORT, passed)
    assert set(_rows(session, "SELECT oid FROM pg_class")) == tables
    assert _rows(session) == []
    assert _leaves_nothing(s3_lab)


@pytest.mark.parametrize(
    "key", ["a b", "a'b", "$(x)", "`x`", "a;b|c&d", 'a"b', "ü", "a%20b", "a+b", "a#b?c", "a*b[c]", "-x", "a\\b"]
)
def test_hostile_keys_are_only_names(session: psycopg.Connection, s3_lab: S3Lab, key: str) -> None:
    """The object of that very key is imported."""
    s3_lab.put(key, _ROWS)
    assert _import(session, s3_lab, key) == f'2 rows imported into relation "t" from file {key} of 12 bytes'


def test_a_planted_key_is_shown_nowhere(session: psycopg.Connection, s3_lab: S3Lab) -> None:
    """In no log, command line, environment, error or statement, while the import runs or when it fails."""
    session.execute(
        "SET log_statement = 'all'; SET client_min_messages = 'debug1'; SET log_error_verbosity = 'verbose'"
    )
    session.execute("SET log_min_messages = 'debug1'; SET log_parameter_max_length = 0")
    key, secret, token = "PLANTED-ID", "PLANTED-SECRET", "PLANTED-TOKEN"
    call = """SELECT aws_s3.table_import_from_s3('t', '', '(format csv)', aws_commons.create_s3_uri('lab', %s, 'us-east-1'),
        aws_commons.create_aws_credentials(%s, %s, %s))"""
    seen: list[str] = []
    is_over = threading.Event()

    def look() -> None:
        with psycopg.connect(s3_lab.conninfo, autocommit=True) as other:
            while not is_over.is_set():
                seen.extend(str(row) for row in other.execute("SELECT * FROM pg_stat_activity"))
                for process in psutil.process_iter():
                    with contextlib.suppress(psutil.Error):
                        seen.append(str((process.cmdline(), process.environ())))

    watcher = threading.Thread(target=look)
    watcher.start()
    s3_lab.put("k.csv", _ROWS)
    s3_lab.put("bad.csv", b"x,y\n")
    try:
        session.execute(call, ("k.csv", key, secret, token))
        for wrong in ("bad.csv", "no such key"):
            with pytest.raises(psycopg.Error) as caught:
                session.execute(call, (wrong, key, secret, token))
            diag = caught.value.diag
            seen.append(str([getattr(diag, name) for name in dir(diag) if not name.startswith("_")]))
    finally:
        is_over.set()
        watcher.join()
    assert any("--call" in each for each in seen)
    assert not any("PLANTED" in each for each in seen)
    assert "PLANTED" not in s3_lab.log
    assert "create_aws_credentials" in s3_lab.log
    logs = "".join(path.read_text() for path in (s3_lab.status.folder / "processes").iterdir())
    assert "PLANTED" not in logs
    assert session.execute("SELECT current_setting('aws_s3._call', true)").fetchone() in [(None,), ("",)]
    assert _leaves_nothing(s3_lab)


def test_a_calls_file_is_private_and_short_lived(session: psycopg.Connection, s3_lab: S3Lab) -> None:
    """Mode 0600 in a folder of the server's account, and gone once the object is read."""
    assert stat.S_IMODE(s3_lab.calls.stat().st_mode) == 0o700
    session.execute("CREATE TABLE locked (a int, b text)")
    s3_lab.put("k.csv", _ROWS)
    with psycopg.connect(s3_lab.conninfo) as other:
        other.execute("LOCK TABLE locked IN EXCLUSIVE MODE")
        caller = threading.Thread(target=_import, args=(session, s3_lab), kwargs={"table": "locked"})
        caller.start()
        file = _await(lambda: next(iter(s3_lab.calls.iterdir()), None))
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert file.stat().st_uid == s3_lab.calls.stat().st_uid
    caller.join()
    assert _leaves_nothing(s3_lab)


@pytest.mark.parametrize("how", ["cancel", "terminate", "kill backend", "kill cat", "timeout"])
def test_nothing_is_left_of_an_import_that_is_ended(s3_lab: S3Lab, how: str) -> None:
    """Neither a process nor a file nor a row, although the source stalls."""
    with socket.create_server(("127.0.0.1", 0)) as stalled:
        session = psycopg.connect(s3_lab.conninfo, autocommit=True)
        session.execute("CREATE TABLE t (a int, b text)")
        session.execute(f"SET aws_s3.endpoint_url = 'http://127.0.0.1:{stalled.getsockname()[1]}'")  # type: ignore[arg-type]
        if how == "timeout":
            session.execute("SET statement_timeout = '3s'")
        pid = session.info.backend_pid
        errors: list[psycopg.Error] = []

        def call() -> None:
            try:
                _import(session, s3_lab)
            except psycopg.Error as error:
                errors.append(error)

        caller = threading.Thread(target=call)
        caller.start()
        cat = _await(lambda: next(iter(_cats(s3_lab)), None))
        _await(lambda: not list(s3_lab.calls.iterdir()))
        with psycopg.connect(s3_lab.conninfo, autocommit=True) as other:
            if how == "cancel":
                other.execute("SELECT pg_cancel_backend(%s)", (pid,))
            elif how == "terminate":
                other.execute("SELECT pg_terminate_backend(%s)", (pid,))
            elif how == "kill cat":
                cat.kill()
            elif how == "kill backend":
                psutil.Process(pid).kill()
        caller.join(timeout=60)
        assert not caller.is_alive()
        session.close()
    (error,) = errors
    expected = {
        "cancel": psycopg.errors.QueryCanceled,
        "timeout": psycopg.errors.QueryCanceled,
        "kill cat": psycopg.errors.ExternalRoutineException,
    }
    assert isinstance(error, expected.get(how, psycopg.OperationalError))
    _await(lambda: not _cats(s3_lab))
    assert _leaves_nothing(s3_lab)
    with _await(lambda: _try_to_connect(s3_lab)) as after:
        assert _rows(after) == []


def test_the_next_call_removes_files_of_backends_that_were_killed(session: psycopg.Connection, s3_lab: S3Lab) -> None:
    """And leaves those of backends that live."""
    s3_lab.put("k.csv", _ROWS)
    owner = s3_lab.calls.stat()
    with subprocess.Popen(["true"]) as ended:
        pass
    alive = s3_lab.calls / f"{session.info.backend_pid}-alive"
    for path in (s3_lab.calls / f"{ended.pid}-dead", alive):
        path.write_text("call")
        os.chown(path, owner.st_uid, owner.st_gid)
    _import(session, s3_lab)
    assert list(s3_lab.calls.iterdir()) == [alive]
    alive.unlink()


def _cats(s3_lab: S3Lab) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if "--call" in process.cmdline() and process.cwd() == str(s3_lab.calls):
                found.append(process)
    return found


def _try_to_connect(s3_lab: S3Lab) -> psycopg.Connection | None:
    with contextlib.suppress(psycopg.OperationalError):
        return psycopg.connect(s3_lab.conninfo)
    return None


def _await(look: Callable[[], _Found | None]) -> _Found:
    """Return what `look` finds, once it does."""
    for _ in range(1200):
        if found := look():
            return found
        time.sleep(0.05)
    pytest.fail("not within a minute")
