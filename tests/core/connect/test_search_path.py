"""What others plant in a schema of the user's search_path is run by none of penstock's statements.

Every operator, and every function of which penstock's statements have the name, is planted in schema public for types
that fit calls better than PostgreSQL's own do. Whatever is planted counts its calls where no rollback undoes that.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
import pytest
from psycopg import sql

from penstock.cli.main import main
from support.repository import source_files

if TYPE_CHECKING:
    from collections.abc import Iterator

_TYPES = """
    bool "char" name int2 int4 int8 oid text varchar bpchar regclass regtype xid tid timestamp timestamptz date interval
    float8 numeric json jsonb pg_lsn int8range int8multirange int2vector oidvector oid[] text[] name[] int4[] int8[]
    int2[] tid[] json[] bool[]
"""
_OPERATORS = "= <> < <= > >= + - * / % || ~ !~ ~~ !~~ ~* -> ->> #>> @> <@ && ^@ &"
# One function for each pair of types, and an operator of each name for it. A function that runs records in which
# statement it ran.
PLANT_OPERATORS = """
DO $plant$
DECLARE
    types pg_catalog.text[] := %(types)s;
    one pg_catalog.text;
    other pg_catalog.text;
    operator pg_catalog.text;
BEGIN
    FOREACH one IN ARRAY types LOOP
        FOREACH other IN ARRAY types LOOP
            EXECUTE pg_catalog.format(
                'CREATE FUNCTION public.planted(%%s, %%s) RETURNS bool LANGUAGE plpgsql AS %%L', one, other, %(body)s
            );
            FOR operator IN
                SELECT DISTINCT o.oprname
                  FROM pg_catalog.pg_operator AS o
                 WHERE o.oprkind = 'b'
                   AND o.oprnamespace = 'pg_catalog'::pg_catalog.regnamespace
                   AND o.oprname::pg_catalog.text = ANY (%(operators)s)
            LOOP
                EXECUTE pg_catalog.format(
                    'CREATE OPERATOR public.%%s (FUNCTION = public.planted, LEFTARG = %%s, RIGHTARG = %%s)',
                    operator, one, other
                );
            END LOOP;
        END LOOP;
    END LOOP;
END
$plant$
"""

# Of one argument for each type; of two, for each type beside those that PostgreSQL's own take.
PLANT_FUNCTIONS = """
DO $plant$
DECLARE
    types pg_catalog.text[] := %(types)s;
    name pg_catalog.name;
    one pg_catalog.text;
    other pg_catalog.text;
BEGIN
    FOREACH name IN ARRAY %(names)s::pg_catalog.name[] LOOP
        FOREACH one IN ARRAY types LOOP
            EXECUTE pg_catalog.format(
                'CREATE OR REPLACE FUNCTION public.%%I(%%s) RETURNS bool LANGUAGE plpgsql AS %%L', name, one, %(body)s
            );
            FOR other IN
                SELECT DISTINCT pg_catalog.format_type(p.proargtypes[1], NULL)
                  FROM pg_catalog.pg_proc AS p
                  JOIN pg_catalog.pg_type AS t ON t.oid = p.proargtypes[1]
                 WHERE p.proname = name
                   AND p.pronamespace = 'pg_catalog'::pg_catalog.regnamespace
                   AND p.pronargs = 2
                   AND t.typtype = 'b'
            LOOP
                EXECUTE pg_catalog.format(
                    'CREATE OR REPLACE FUNCTION public.%%I(%%s, %%s) RETURNS bool LANGUAGE plpgsql AS %%L',
                    name, one, other, %(body)s
                );
            END LOOP;
        END LOOP;
    END LOOP;
END
$plant$
"""
BODY = """
BEGIN
    PERFORM pg_catalog.nextval('public.planted_calls'::pg_catalog.regclass);
    RAISE WARNING 'planted: %', pg_catalog.current_query();
    RETURN false;
END
"""


def words_of_statements() -> set[str]:
    """Return all words before a parenthesis in the modules that may hold SQL."""
    modules = [path for path in source_files() if "psycopg" in path.read_text(encoding="utf-8")]
    files = [*source_files("*.sql"), *modules]
    return {word for file in files for word in re.findall(r"(\w+)\(", file.read_text(encoding="utf-8"))}


@pytest.fixture
def planted(database: str) -> Iterator[psycopg.Connection]:
    """Provide a session in a database whose schema public is full of planted things, and goes before pg_catalog."""
    with psycopg.connect(database, autocommit=True, options="-c search_path=pg_catalog") as session:
        name = session.info.dbname
        session.execute(
            sql.SQL(
                "CREATE SEQUENCE public.planted_calls; ALTER DATABASE {} SET search_path = public, pg_catalog"
            ).format(sql.Identifier(name))
        )
        found = session.execute(
            "SELECT DISTINCT proname::text FROM pg_proc WHERE pronamespace = 'pg_catalog'::regnamespace"
        ).fetchall()
        names = sorted({name for (name,) in found} & words_of_statements())
        values = {"types": _TYPES.split(), "operators": _OPERATORS.split(), "names": names, "body": BODY}
        cursor = psycopg.ClientCursor(session)
        cursor.execute(PLANT_OPERATORS, values)
        cursor.execute(PLANT_FUNCTIONS, values)
        yield session


def calls(session: psycopg.Connection) -> bool:
    """Whether anything that was planted has been called."""
    row = session.execute("SELECT is_called FROM public.planted_calls").fetchone()
    assert row is not None
    return bool(row[0])


def write(path: Path, text: str) -> str:
    """Write a file and return its name."""
    path.write_text(text)
    return str(path)


@pytest.mark.part("rest")
def test_planted_operators_and_functions_are_never_run(
    planted: psycopg.Connection, database: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """By a superuser who loads in every way, looks, repairs, resumes, retries and forgets."""
    planted.execute(
        "CREATE SCHEMA app; CREATE TABLE app.parent (id int PRIMARY KEY); INSERT INTO app.parent VALUES (1), (2), (3);"
        "CREATE TABLE app.t (id int PRIMARY KEY, k numeric CHECK (k > 0), v varchar(20), p int REFERENCES app.parent,"
        " at timestamptz DEFAULT pg_catalog.now(), UNIQUE (id, v));"
        "CREATE INDEX ON app.t (v); CREATE TABLE app.part (id int, v text) PARTITION BY RANGE (id);"
        "CREATE TABLE app.part1 PARTITION OF app.part FOR VALUES FROM (0) TO (100); CREATE INDEX ON app.part (v);"
        "CREATE FUNCTION app.note() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END';"
        "CREATE TRIGGER note AFTER INSERT ON app.t FOR EACH ROW EXECUTE FUNCTION app.note()"
    )
    good = write(tmp_path / "good.csv", "id,k,v,p\n1,1,a,1\n2,2,b,2\n3,3,c,3\n")
    many = "".join(f"{n % 90 + 10},{n % 7},x,{n % 5}\n" if n % 11 else f"{n},y,z,1\n" for n in range(400))
    bad = write(tmp_path / "bad.csv", f"id,k,v,p\n{many}")
    more = write(tmp_path / "more.csv", "id,k,v,p\n1,9,n,1\n500,1,o,2\n500,1,o,2\n")
    pairs = write(tmp_path / "pairs.csv", "id,v\n1,a\n2,b\n")
    change = write(tmp_path / "change.sql", "INSERT INTO app.part SELECT id::pg_catalog.int4, v FROM :staging")
    to = ["--to", database]

    def run(*words: str, exits: tuple[int, ...] = (0,)) -> None:
        code = main([*words, *to])
        shown = capsys.readouterr()
        assert not calls(planted), f"{words}: {shown.err}"
        assert code in exits, f"{words}: {code} {shown.out} {shown.err}"

    run("doctor", "--into", "app.t", exits=(0, 9))
    run("load", good, "--into", "app.t", "--plan")
    run("load", good, "--into", "app.t", "--check")
    run("load", good, "--into", "app.t", "--indexes", "rebuild", "--triggers", "disable", "--autovacuum", "pause")
    run("load", good, "--into", "app.t")
    run("load", bad, "--into", "app.t", "--on-error", "reject", exits=(0, 3))
    run("load", more, "--into", "app.t", "--mode", "upsert", "--key", "id", "--keep", "last")
    run("load", more, "--into", "app.t", "--mode", "insert-new", "--key", "id", "--again")
    run("load", more, "--into", "app.t", "--mode", "upsert", "--key", "id", "--again", exits=(5,))
    run("load", bad, "--into", "app.t", "--mode", "upsert", "--key", "id", "--again", "--keep", "first",
        "--on-error", "reject", exits=(0, 3))  # fmt: skip
    run("load", good, "--into", "app.t", "--mode", "replace", "--again")
    run("load", good, "--into", "app.t", "--mode", "truncate", "--again", "--atomic")
    run("load", pairs, "--into", "app.part", "--indexes", "rebuild")
    run("load", pairs, "--into", "app.part", "--transform", change, "--again")
    run("load", pairs, "--into", "app.made", "--create")
    run("load", pairs, "--into", "made_unqualified", "--create")
    run("loads")
    failed = write(tmp_path / "failed.csv", "id,v\n1,a\nx,b\n")
    run("load", failed, "--into", "app.part", exits=(5,))
    ids = [str(row[0]) for row in planted.execute("SELECT id FROM penstock.loads ORDER BY began_at").fetchall()]
    for load_id in ids:
        run("loads", "show", load_id)
        run("rejects", load_id)
        run("retry", load_id, exits=(0, 3, 6))
        run("resume", load_id, exits=(0, 5, 6))
    run("repair", "--plan")
    run("repair")
    run("settings", "show")
    run("settings", "diff", exits=(0, 1))
    for load_id in ids:
        run("loads", "forget", load_id, exits=(0, 6))


# The server calls the function when it plans a query of the table.
ATTACH = """
    CREATE SEQUENCE public.calls;
    CREATE FUNCTION public.count_call(int) RETURNS int IMMUTABLE LANGUAGE plpgsql
        AS $$BEGIN PERFORM pg_catalog.nextval('public.calls'); RETURN $1; END$$;
    CREATE TABLE t (id int PRIMARY KEY, v text);
    CREATE INDEX ON t (v) WHERE public.count_call(1) = 1;
    CREATE STATISTICS ON (public.count_call(1) + id), v FROM t;
"""


def test_what_an_owner_has_attached_runs_in_the_statements_that_are_documented(database18: str, tmp_path: Path) -> None:
    """SECURITY.md: the plan of an append runs none of it; a load, a verification and the plan of a merge do."""
    path = write(tmp_path / "a.csv", "id,v\n1,a\n")
    with psycopg.connect(database18, autocommit=True) as session:
        session.execute(ATTACH.encode())

        def is_called_by(*words: str) -> bool:
            session.execute("SELECT pg_catalog.setval('public.calls', 1, false)")
            assert main([*words, "--to", database18]) == 0
            return session.execute("SELECT is_called FROM public.calls").fetchone() == (True,)

        load = ("load", path, "--into", "t")
        assert not is_called_by(*load, "--plan")
        assert not is_called_by("doctor", "--into", "t", "--for", path)
        assert is_called_by(*load)
        assert is_called_by("verify", "latest")
        assert is_called_by(*load, "--again", "--mode", "upsert", "--key", "id", "--plan")
