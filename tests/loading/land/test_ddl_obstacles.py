"""What a swap could not carry over is found and named before anything is loaded."""

from __future__ import annotations

from typing import TYPE_CHECKING

import psycopg
import pytest
from psycopg import sql

from penstock.changes.tables.definition import DdlObstacle
from penstock.core.catalogue.staging import drop_landing_table
from penstock.core.errors import TargetError
from penstock.core.values.table import TableName
from penstock.ledger.schema import find_publications
from penstock.loading.land.exchange import refuse_obstacles
from support.ddl import capture, create_replacement, find_obstacles, finish_replacement, swap_replacement

if TYPE_CHECKING:
    from penstock.core.connect.connection import Connection

pytestmark = pytest.mark.versions

# What is made beside table s.t (id int primary key, a text, p point), the kind, and what PostgreSQL calls it.
DEPENDENTS = {
    "view": ("CREATE VIEW s.v AS SELECT a FROM s.t", "view", "view s.v"),
    "materialized view": ("CREATE MATERIALIZED VIEW s.m AS SELECT a FROM s.t", "materialized view", None),
    "view by key": (
        "CREATE VIEW s.g AS SELECT id, a FROM s.t GROUP BY id",
        "view",
        "view s.g",
    ),
    "foreign key": (
        "CREATE TABLE s.child (t int CONSTRAINT to_t REFERENCES s.t)",
        "table constraint",
        "constraint to_t on table s.child",
    ),
    "function of its rows": (
        "CREATE FUNCTION s.f(s.t) RETURNS int LANGUAGE sql AS 'SELECT 1'",
        "function",
        "function s.f(s.t)",
    ),
    "function returning its rows": (
        "CREATE FUNCTION s.r() RETURNS SETOF s.t LANGUAGE sql AS 'SELECT * FROM s.t'",
        "function",
        "function s.r()",
    ),
    "function of a column's type": (
        "CREATE FUNCTION s.c(s.t[]) RETURNS int LANGUAGE sql AS 'SELECT 1'",
        "function",
        "function s.c(s.t[])",
    ),
    "function with a parsed body": (
        "CREATE FUNCTION s.n() RETURNS bigint BEGIN ATOMIC SELECT count(*) FROM s.t; END",
        "function",
        "function s.n()",
    ),
    "column of its row type": (
        "CREATE TABLE s.other (x s.t)",
        "table column",
        "column x of table s.other",
    ),
    "column of its array type": (
        "CREATE TABLE s.others (xs s.t[])",
        "table column",
        "column xs of table s.others",
    ),
    "domain": ("CREATE DOMAIN s.d AS s.t", "type", "type s.d"),
    "rule of another table": (
        "CREATE TABLE s.o (x int); CREATE RULE r AS ON INSERT TO s.o DO ALSO DELETE FROM s.t",
        "rule",
        "rule r on table s.o",
    ),
    "policy of another table": (
        "CREATE TABLE s.o (x int); CREATE POLICY p ON s.o USING (EXISTS (SELECT FROM s.t WHERE id = x))",
        "policy",
        "policy p on table s.o",
    ),
    "inheritance child": ("CREATE TABLE s.kid () INHERITS (s.t)", "table", "table s.kid"),
    "default from its identity": (
        """ALTER TABLE s.t ALTER id ADD GENERATED ALWAYS AS IDENTITY;
           CREATE TABLE s.o (x int DEFAULT nextval('s.t_id_seq'))""",
        "default value",
        "default value for column x of table s.o",
    ),
}

# What table s.t is or has, and the description.
HINDRANCES = {
    "partitioned": (
        "CREATE TABLE s.t (id int) PARTITION BY LIST (id)",
        "kind of relation",
        "table s.t is partitioned",
    ),
    "view": ("CREATE VIEW s.t AS SELECT 1 AS id", "kind of relation", "table s.t is not a plain table"),
    "inheritor": (
        "CREATE TABLE s.p (id int); CREATE TABLE s.t () INHERITS (s.p)",
        "inheritance",
        "table s.t inherits from s.p",
    ),
    "typed": (
        "CREATE TYPE s.y AS (id int); CREATE TABLE s.t OF s.y",
        "typed table",
        "table s.t is of type s.y",
    ),
    "extension's": (
        "CREATE TABLE s.t (id int); ALTER EXTENSION plpgsql ADD TABLE s.t",
        "extension",
        "table s.t belongs to extension plpgsql",
    ),
    "depends on extension": (
        "CREATE TABLE s.t (id int); CREATE INDEX i ON s.t (id); ALTER INDEX s.i DEPENDS ON EXTENSION plpgsql",
        "extension",
        "index s.i depends on extension plpgsql",
    ),
    "subscribed": (
        """CREATE TABLE s.t (id int);
           CREATE SUBSCRIPTION "{sub}" CONNECTION 'dbname=x' PUBLICATION p WITH (connect = false, slot_name = NONE);
           INSERT INTO pg_subscription_rel
           SELECT oid, 's.t'::regclass, 'r', NULL FROM pg_subscription WHERE subname = '{sub}'""",
        "subscription",
        'table s.t is subscribed to by subscription "{sub}"',
    ),
    "comment on its type": (
        "CREATE TABLE s.t (id int); COMMENT ON TYPE s.t IS 'x'",
        "row type",
        "row type of table s.t has privileges or a comment of its own",
    ),
    "disabled foreign key": (
        "CREATE TABLE s.t (id int PRIMARY KEY, up int CONSTRAINT k REFERENCES s.t);ALTER TABLE s.t DISABLE TRIGGER ALL",
        "trigger state",
        "foreign key k on table s.t has its triggers disabled",
    ),
    "trigger of another table": (
        """CREATE TABLE s.t (id int); CREATE TABLE s.o (id int);
           CREATE FUNCTION s.f() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END';
           CREATE CONSTRAINT TRIGGER g AFTER INSERT ON s.o FROM s.t FOR EACH ROW EXECUTE FUNCTION s.f()""",
        "trigger",
        "trigger g on table s.o",
    ),
    "granted by another role": (
        """CREATE TABLE s.t (id int); GRANT SELECT ON s.t TO pg_monitor WITH GRANT OPTION;
           GRANT USAGE ON SCHEMA s TO PUBLIC; SET ROLE pg_monitor; GRANT SELECT ON s.t TO PUBLIC; RESET ROLE""",
        "grant",
        "table s.t has grants by role pg_monitor, who is not its owner",
    ),
    "index of the whole row": (
        "CREATE TABLE s.t (id int); CREATE INDEX i ON s.t ((t IS NULL))",
        "whole-row reference",
        "index s.i refers to the whole row",
    ),
    "check of the whole row": (
        "CREATE TABLE s.t (id int, CONSTRAINT c CHECK (t.* IS NOT NULL))",
        "whole-row reference",
        "constraint c on table s.t refers to the whole row",
    ),
}


@pytest.fixture(autouse=True)
def _schema(connection: Connection) -> None:
    connection.execute("CREATE SCHEMA s")


@pytest.mark.parametrize("case", DEPENDENTS)
def test_dependent_is_named(connection: Connection, case: str) -> None:
    """By its kind and qualified name, in PostgreSQL's words, and it would indeed stop the drop or be lost."""
    connection.execute("CREATE TABLE s.t (id int PRIMARY KEY, a text, p point)")
    statements, kind, description = DEPENDENTS[case]
    connection.execute(statements.encode())
    expected = DdlObstacle(kind=kind, description=description or f"{kind} s.m")
    assert find_obstacles(connection, capture(connection, "s.t")) == (expected,)
    with pytest.raises(psycopg.errors.DependentObjectsStillExist):
        connection.execute("DROP TABLE s.t")


@pytest.mark.parametrize("case", HINDRANCES)
def test_hindrance_is_named(connection: Connection, database: str, case: str) -> None:
    """What the table itself is or belongs to."""
    name = f"sub {psycopg.conninfo.conninfo_to_dict(database)['dbname']}"
    statements, kind, description = (text.replace("{sub}", name) for text in HINDRANCES[case])
    connection.execute("SET client_min_messages = error")
    connection.execute(statements.encode())
    found = find_obstacles(connection, capture(connection, "s.t"))
    if case == "subscribed":
        connection.execute(f'DROP SUBSCRIPTION "{name}"'.encode())
    assert DdlObstacle(kind=kind, description=description) in found


def test_policy_that_reads_its_own_table_is_no_obstacle(connection: Connection) -> None:
    """Nor are a foreign key to itself, a shared sequence that others use, or a view on another table."""
    connection.execute(
        "CREATE TABLE s.t (id serial PRIMARY KEY, up int REFERENCES s.t);"
        " CREATE POLICY p ON s.t USING (EXISTS (SELECT FROM s.t AS o WHERE o.id = t.up));"
        " CREATE TABLE s.o (x int DEFAULT nextval('s.t_id_seq')); CREATE VIEW s.v AS SELECT * FROM s.o"
    )
    assert find_obstacles(connection, capture(connection, "s.t")) == ()


def test_missing_rights_are_obstacles(connection: Connection, user_connection: Connection, user_name: str) -> None:
    """Who does not own the table learns it before the load."""
    connection.execute("CREATE TABLE s.t (id int)")
    connection.execute(sql.SQL("GRANT USAGE ON SCHEMA s TO {}").format(sql.Identifier(user_name)))
    found = find_obstacles(user_connection, capture(user_connection, "s.t"))
    assert [obstacle.description for obstacle in found] == [
        f'role "{user_name}" does not own table s.t',
        f'role "{user_name}" may not create in schema s',
    ]


def test_owner_who_may_not_read_is_told(connection: Connection, user_connection: Connection, user_name: str) -> None:
    """LIKE needs SELECT."""
    user = sql.Identifier(user_name)
    connection.execute(sql.SQL("GRANT ALL ON SCHEMA s TO {}").format(user))
    user_connection.execute("CREATE TABLE s.t (id int); REVOKE SELECT ON s.t FROM CURRENT_USER")
    found = find_obstacles(user_connection, capture(user_connection, "s.t"))
    assert [obstacle.description for obstacle in found] == [f'role "{user_name}" may not read table s.t']


def test_rights_that_the_parts_need_are_obstacles(
    connection: Connection, user_connection: Connection, user_name: str
) -> None:
    """An owner for whom a superuser has made triggers, foreign keys and publications cannot make them again."""
    user = sql.Identifier(user_name)
    connection.execute(sql.SQL("GRANT ALL ON SCHEMA s TO {}").format(user))
    connection.execute(
        "CREATE FUNCTION s.f() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END';"
        " REVOKE ALL ON FUNCTION s.f() FROM PUBLIC; CREATE TABLE s.parent (id int PRIMARY KEY);"
        " CREATE TABLE s.t (id int REFERENCES s.parent);"
        " CREATE TRIGGER g BEFORE INSERT ON s.t FOR EACH ROW EXECUTE FUNCTION s.f();"
        " CREATE PUBLICATION p FOR TABLE s.t"
    )
    connection.execute(sql.SQL("ALTER TABLE s.t OWNER TO {}").format(user))
    found = find_obstacles(user_connection, capture(user_connection, "s.t"))
    assert [obstacle.description for obstacle in found] == [
        f'role "{user_name}" does not own publication p',
        f'role "{user_name}" may not execute s.f() of trigger g',
        f'role "{user_name}" may not refer to table s.parent of constraint t_id_fkey',
    ]


def test_refusal_names_them_all(connection: Connection) -> None:
    """Each on a line of its own."""
    connection.execute("CREATE TABLE s.t (id int); CREATE VIEW s.v AS TABLE s.t; CREATE TABLE s.k () INHERITS (s.t)")
    definition = capture(connection, "s.t")
    with pytest.raises(TargetError) as caught:
        refuse_obstacles(definition.name, find_obstacles(connection, definition))
    assert caught.value.message == 'cannot replace table "s.t"'
    assert "\ntable: table s.k\nview: view s.v" in (caught.value.detail or "")


def test_nothing_to_refuse() -> None:
    """A table without obstacles passes."""
    refuse_obstacles(TableName(schema="s", name="t"), ())


def test_dependent_made_during_the_load_refuses_the_swap(connection: Connection) -> None:
    """The old table stays, and the new one can be dropped."""
    connection.execute("CREATE TABLE s.t (id int PRIMARY KEY); INSERT INTO s.t VALUES (1)")
    definition = capture(connection, "s.t")
    oid = create_replacement(connection, definition, name="new")
    finish_replacement(connection, definition, oid)
    connection.execute("CREATE VIEW s.v AS TABLE s.t")
    with pytest.raises(TargetError, match="cannot replace"), connection.transaction():
        swap_replacement(connection, definition, oid)
    assert connection.execute("SELECT * FROM s.v").fetchall() == [(1,)]
    assert drop_landing_table(connection, schema="s", name="new", oid=oid)


def test_publications_of_all_tables_are_found(connection: Connection) -> None:
    """And noted in the definition as not the table's own."""
    connection.execute("CREATE TABLE s.t (id int); CREATE PUBLICATION everything FOR ALL TABLES")
    assert find_publications(connection) == ("everything",)
    definition = capture(connection, "s.t")
    assert definition.implicit_publications == ("everything",)


@pytest.mark.pg(">= 15")
def test_publications_of_the_schema_are_noted(connection: Connection) -> None:
    """A replacement in that schema is published too."""
    connection.execute("CREATE TABLE s.t (id int); CREATE PUBLICATION ours FOR TABLES IN SCHEMA s")
    assert capture(connection, "s.t").implicit_publications == ("ours",)
    assert find_publications(connection) == ()
