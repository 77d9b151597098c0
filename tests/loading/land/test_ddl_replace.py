"""A table is replaced, and nothing about it has changed but its rows."""

from __future__ import annotations

import secrets
import threading
from typing import TYPE_CHECKING

import psycopg
import pytest
from psycopg import sql

from penstock.changes.tables.definition import find_differences
from penstock.core.catalogue.staging import drop_landing_table
from penstock.core.errors import DataError, ServerError, TargetError
from support.ddl import (
    NEW,
    capture,
    capture_table,
    create_replacement,
    find_obstacles,
    finish_replacement,
    make_rich_table,
    replace,
    swap_replacement,
    table_oid,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.changes.tables.definition import TableDefinition
    from penstock.core.connect.connection import Connection

pytestmark = pytest.mark.versions

RICH = 'shop."Order s"'
ROWS = (
    "INSERT INTO {} (customer, price, span) VALUES (1, 10, '[1,3)'), (2, 11, '[3,9)')",
    "INSERT INTO {} (id, customer, parent, price) VALUES (5000, 2, 7, 12)",
)


@pytest.fixture
def roles(connection: Connection) -> Iterator[dict[str, str]]:
    """Provide three ordinary roles: owner, reader, keeper."""
    suffix = secrets.token_hex(4)
    names = {role: f'"ddl {role} {suffix}"' for role in ("owner", "reader", "keeper")}
    for name in names.values():
        connection.execute(f"CREATE ROLE {name}".encode())
    yield names
    for name in names.values():
        connection.execute(f"DROP OWNED BY {name} CASCADE".encode())
        connection.execute(f"DROP ROLE {name}".encode())


@pytest.fixture
def rich(connection: Connection, roles: dict[str, str]) -> TableDefinition:
    """Provide the definition of the table that has everything."""
    make_rich_table(connection, roles)
    return capture(connection, RICH)


def fetch(connection: Connection, query: str) -> list[tuple[object, ...]]:
    """Return the rows of a query."""
    return connection.execute(query.encode()).fetchall()


def prepare(connection: Connection, name: str, *inserts: str) -> tuple[TableDefinition, int]:
    """Make and finish a replacement; return the old table's definition and the new one's oid."""
    definition = capture(connection, name)
    oid = create_replacement(connection, definition, name=NEW)
    for statement in inserts:
        connection.execute(statement.encode())
    finish_replacement(connection, definition, oid)
    return definition, oid


def test_replaced_table_is_like_the_old_one(connection: Connection, rich: TableDefinition) -> None:
    """Names, grants, comments, order: all that is captured is equal, and the rows are the new ones."""
    assert find_obstacles(connection, rich) == ()
    replace(connection, RICH, *ROWS)
    after = capture(connection, RICH)
    assert find_differences(rich, after) == ()
    assert after.oid != rich.oid
    assert fetch(connection, f"SELECT count(*) FROM {RICH}") == [(3,)]


def test_definition_has_every_kind_of_part(rich: TableDefinition) -> None:
    """The comparison would otherwise compare nothing with nothing."""
    assert all((rich.indexes, rich.publications))
    assert {"p", "u", "x", "c", "f"} <= {constraint.kind for constraint in rich.constraints}
    kinds = {"columns", "sequences", "table", "triggers", "rules", "policies", "statistics", "grants", "comments"}
    assert {part.part for part in rich.parts} == kinds


def test_table_is_replaced_twice(connection: Connection, rich: TableDefinition) -> None:
    """The second time starts from what the first has made."""
    replace(connection, RICH, *ROWS)
    replace(connection, RICH)
    assert capture(connection, RICH) == rich


def test_nothing_is_left_under_working_names(connection: Connection, rich: TableDefinition) -> None:
    """Whatever has a name in a schema."""
    names = (
        "SELECT relname FROM pg_class UNION ALL SELECT stxname FROM pg_statistic_ext"
        " UNION ALL SELECT conname FROM pg_constraint UNION ALL SELECT typname FROM pg_type"
    )
    before = sorted(fetch(connection, names), key=str)
    replace(connection, RICH, *ROWS)
    after = sorted(fetch(connection, names), key=str)
    assert [name for name in after if "toast" not in str(name)] == [name for name in before if "toast" not in str(name)]


def test_search_path_does_not_decide_what_names_mean(connection: Connection) -> None:
    """A function of the user's that hides a built-in one stays the one that was meant."""
    connection.execute(
        "CREATE SCHEMA s; CREATE FUNCTION s.lower(text) RETURNS text IMMUTABLE LANGUAGE sql AS 'SELECT $1';"
        "SET search_path = s, pg_catalog; CREATE TABLE s.t (a text, CHECK (s.lower(a) <> pg_catalog.lower(a)));"
        "CREATE INDEX ON s.t (lower(a)); CREATE INDEX ON s.t (pg_catalog.lower(a))"
    )
    before = replace(connection, "s.t", "INSERT INTO {} VALUES ('A')")
    assert capture(connection, "s.t") == before
    assert fetch(connection, "SHOW search_path") == [("s, pg_catalog",)]


def test_functions_of_a_check_see_the_users_search_path(connection: Connection) -> None:
    """Their bodies name what they call without a schema."""
    connection.execute(
        "CREATE SCHEMA s; CREATE FUNCTION s.low() RETURNS int LANGUAGE sql AS 'SELECT 3';"
        "CREATE FUNCTION s.fits(int) RETURNS bool LANGUAGE plpgsql AS 'BEGIN RETURN $1 > low(); END';"
        "CREATE TABLE s.t (a int CHECK (s.fits(a))); SET search_path = s"
    )
    before = replace(connection, "s.t", "INSERT INTO {} VALUES (4)")
    assert capture(connection, "s.t") == before


def test_forced_row_security_hides_no_orphan(
    user_connection: Connection, connection: Connection, user_name: str
) -> None:
    """The owner's own foreign key is validated before the owner's view of the rows is cut."""
    connection.execute(sql.SQL("CREATE SCHEMA s AUTHORIZATION {}").format(sql.Identifier(user_name)))
    user_connection.execute(
        "CREATE TABLE s.p (id int PRIMARY KEY); CREATE TABLE s.t (p int REFERENCES s.p);"
        "ALTER TABLE s.t ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY"
    )
    with pytest.raises(DataError, match="foreign key"):
        replace(user_connection, "s.t", "INSERT INTO {} VALUES (1)")


def test_table_without_columns_is_replaced(connection: Connection) -> None:
    """PostgreSQL has such."""
    connection.execute("CREATE TABLE t ()")
    assert replace(connection, "t") == capture(connection, "t")


def test_ordinary_owner_can_replace(connection: Connection, user_connection: Connection, user_name: str) -> None:
    """No superuser is needed for what an owner could have made."""
    connection.execute(sql.SQL("CREATE SCHEMA s AUTHORIZATION {}").format(sql.Identifier(user_name)))
    user_connection.execute(
        "CREATE TABLE s.t (id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY, n serial, up int REFERENCES s.t);"
        "GRANT SELECT ON s.t TO PUBLIC; ALTER TABLE s.t ENABLE ROW LEVEL SECURITY;"
        "CREATE POLICY p ON s.t USING (t.id > 0); COMMENT ON TABLE s.t IS 'mine'"
    )
    assert find_obstacles(user_connection, capture(user_connection, "s.t")) == ()
    before = replace(user_connection, "s.t", "INSERT INTO {} (up) VALUES (1)")
    assert capture(user_connection, "s.t") == before


def test_owner_that_may_not_create_in_the_schema_is_an_obstacle(
    connection: Connection, user_connection: Connection, user_name: str
) -> None:
    """ALTER TABLE gives the new table to it, which takes the right unless a superuser does it."""
    owner = f"owner_{secrets.token_hex(4)}"
    connection.execute(
        sql.SQL(
            "CREATE ROLE {owner}; GRANT {owner} TO {user}; CREATE SCHEMA s; GRANT CREATE, USAGE ON SCHEMA s TO {user};"
            "CREATE TABLE s.t (a int); ALTER TABLE s.t OWNER TO {owner}"
        ).format(owner=sql.Identifier(owner), user=sql.Identifier(user_name))
    )
    try:
        (found,) = find_obstacles(user_connection, capture(user_connection, "s.t"))
        assert found.description == f"owner {owner} of table s.t may not create in schema s"
        assert find_obstacles(connection, capture(connection, "s.t")) == ()
        connection.execute(sql.SQL("GRANT CREATE ON SCHEMA s TO {}").format(sql.Identifier(owner)))
        replace(user_connection, "s.t", "INSERT INTO {} VALUES (1)")
    finally:
        connection.execute(sql.SQL("DROP OWNED BY {o}; DROP ROLE {o}").format(o=sql.Identifier(owner)))


def test_replacement_is_nobody_elses_to_read(connection: Connection, rich: TableDefinition) -> None:
    """Default privileges would open it to all, and are taken back before the transaction ends."""
    connection.execute("ALTER DEFAULT PRIVILEGES GRANT ALL ON TABLES TO PUBLIC")
    connection.execute("ALTER DEFAULT PRIVILEGES GRANT ALL ON SEQUENCES TO PUBLIC")
    oid = create_replacement(connection, rich, name=NEW)
    grants = [part.statement for part in capture_table(connection, oid).parts if part.part == "grants"]
    assert [text for text in grants if f'TO "{rich.table.owner}"' not in str(text) and "REVOKE" not in str(text)] == []
    assert len(grants) > 1
    finish_replacement(connection, rich, oid)
    swap_replacement(connection, rich, oid)
    assert capture(connection, RICH) == rich


def test_bare_replacement_has_no_indexes_keys_or_triggers(connection: Connection, rich: TableDefinition) -> None:
    """Only NOT NULL and CHECK, which cost nothing more than later; and it says what it is."""
    replacement = capture_table(connection, create_replacement(connection, rich, name=NEW))
    assert not {"indexes", "triggers", "policies"} & {part.part for part in replacement.parts} | {*replacement.indexes}
    assert {constraint.kind for constraint in replacement.constraints} <= {"n", "c"}
    assert replacement.table.persistence == "p"
    (comment,) = [part.statement for part in replacement.parts if part.part == "comments"]
    assert (
        comment == """COMMENT ON TABLE shop."new orders" IS 'made by penstock to replace shop.Order s; not finished'"""
    )


def test_unlogged_table_stays_unlogged(connection: Connection) -> None:
    """Its user chose so."""
    connection.execute("CREATE UNLOGGED TABLE t (id int GENERATED ALWAYS AS IDENTITY)")
    before = replace(connection, "t")
    assert capture(connection, "t") == before
    assert before.table.persistence == "u"


def test_identity_goes_on_where_it_stood(connection: Connection) -> None:
    """Values drawn from either table are not given out again."""
    connection.execute("CREATE TABLE t (id int GENERATED ALWAYS AS IDENTITY (INCREMENT -2 START -10), a text)")
    connection.execute("INSERT INTO t (a) VALUES ('x'), ('y')")
    definition, oid = prepare(connection, "t", f"""INSERT INTO "{NEW}" (a) VALUES ('new')""")
    connection.execute("INSERT INTO t (a) VALUES ('late'), ('later')")
    swap_replacement(connection, definition, oid)
    connection.execute("INSERT INTO t (a) VALUES ('after')")
    assert fetch(connection, "SELECT id, a FROM t ORDER BY id DESC") == [(-14, "new"), (-18, "after")]


def test_unused_identity_stays_unused(connection: Connection) -> None:
    """Its first value is still to come."""
    connection.execute("CREATE TABLE t (id int GENERATED ALWAYS AS IDENTITY (START 5))")
    replace(connection, "t")
    assert fetch(connection, "INSERT INTO t DEFAULT VALUES RETURNING id") == [(5,)]


def test_serial_draws_from_the_old_sequence(connection: Connection) -> None:
    """It belongs to the new column after the swap, and goes with the table when that is dropped."""
    connection.execute("CREATE TABLE t (id serial, a text); INSERT INTO t (a) VALUES ('x'), ('y')")
    sequence = table_oid(connection, "t_id_seq")
    replace(connection, "t", "INSERT INTO {} (a) VALUES ('new')")
    assert fetch(connection, "INSERT INTO t (a) VALUES ('after') RETURNING id") == [(4,)]
    assert fetch(connection, "SELECT pg_get_serial_sequence('t', 'id')::regclass::oid::int") == [(sequence,)]
    connection.execute("DROP TABLE t")
    assert fetch(connection, "SELECT to_regclass('t_id_seq')") == [(None,)]


def test_readers_see_old_or_new_rows(connection: Connection, database: str) -> None:
    """Whenever they ask, also in the moment of the swap; none ever finds the table empty or missing."""
    connection.execute("CREATE TABLE t (a int PRIMARY KEY); INSERT INTO t SELECT generate_series(1, 10)")
    seen: list[int] = []
    has_seen = {count: threading.Event() for count in (10, 20)}

    def read() -> None:
        with psycopg.connect(database, autocommit=True) as reader:
            while not has_seen[20].is_set():
                (row,) = reader.execute("SELECT count(*) FROM t").fetchall()
                seen.append(row[0])
                if row[0] in has_seen:
                    has_seen[row[0]].set()

    reading = threading.Thread(target=read, daemon=True)
    reading.start()
    assert has_seen[10].wait(60)
    replace(connection, "t", "INSERT INTO {} SELECT generate_series(1, 20)")
    reading.join(60)
    assert set(seen) == {10, 20}
    assert seen == sorted(seen)


def test_other_sessions_plans_find_the_new_table(connection: Connection, database: str) -> None:
    """A prepared statement, and a function that has been called, read by name again."""
    connection.execute(
        "CREATE TABLE t (a int PRIMARY KEY); INSERT INTO t VALUES (1);"
        "CREATE FUNCTION f() RETURNS bigint LANGUAGE plpgsql AS 'BEGIN RETURN (SELECT sum(a) FROM t); END'"
    )
    with psycopg.connect(database, autocommit=True) as other:
        other.execute("PREPARE p AS SELECT sum(a) FROM t")
        assert fetch(other, "EXECUTE p") == fetch(other, "SELECT f()") == [(1,)]
        replace(connection, "t", "INSERT INTO {} VALUES (2)")
        assert fetch(other, "EXECUTE p") == fetch(other, "SELECT f()") == [(2,)]


def test_error_in_finish_leaves_the_old_table(connection: Connection) -> None:
    """Rows that violate a constraint are reported as such. The new table can be dropped."""
    connection.execute("CREATE TABLE t (a int PRIMARY KEY, b int CHECK (b > 0)); INSERT INTO t VALUES (1, 1)")
    before = capture(connection, "t")
    oid = create_replacement(connection, before, name=NEW)
    connection.execute(f'INSERT INTO "{NEW}" VALUES (1, 1), (1, 2)'.encode())
    with pytest.raises(DataError):
        finish_replacement(connection, before, oid)
    assert (capture(connection, "t"), fetch(connection, "TABLE t")) == (before, [(1, 1)])
    assert drop_landing_table(connection, schema="public", name=NEW, oid=oid)
    assert fetch(connection, f"SELECT to_regclass('\"{NEW}\"')") == [(None,)]


def test_finish_goes_on_after_an_error(connection: Connection) -> None:
    """Indexes that are made already are kept, and a foreign key that failed is tried again."""
    connection.execute("CREATE TABLE p (id int PRIMARY KEY); CREATE TABLE t (id int PRIMARY KEY, p int REFERENCES p)")
    before = capture(connection, "t")
    oid = create_replacement(connection, before, name=NEW)
    connection.execute(f'INSERT INTO "{NEW}" VALUES (1, 1)'.encode())
    with pytest.raises(DataError, match="foreign key"):
        finish_replacement(connection, before, oid)
    connection.execute("INSERT INTO p VALUES (1)")
    finish_replacement(connection, before, oid)
    swap_replacement(connection, before, oid)
    assert capture(connection, "t") == before


def test_finish_twice_changes_nothing(connection: Connection, rich: TableDefinition) -> None:
    """All that has everything is finished again as a whole."""
    oid = create_replacement(connection, rich, name=NEW)
    finish_replacement(connection, rich, oid)
    once = capture_table(connection, oid)
    finish_replacement(connection, rich, oid)
    assert capture_table(connection, oid) == once


def test_finish_and_swap_in_the_callers_transaction(connection: Connection, rich: TableDefinition) -> None:
    """Rolled back, it has all not happened: that is how a plan can be rehearsed before the load."""
    with connection.transaction(force_rollback=True):
        oid = create_replacement(connection, rich, name=NEW)
        finish_replacement(connection, rich, oid)
        swap_replacement(connection, rich, oid)
    assert capture(connection, RICH) == rich
    assert table_oid(connection, RICH) == rich.oid


@pytest.mark.parametrize(
    ("change", "part"),
    [
        ("ALTER TABLE t ADD COLUMN b int", "columns"),
        ("CREATE INDEX ON t (a)", "indexes"),
        ("GRANT SELECT ON t TO PUBLIC", "grants"),
        ("COMMENT ON TABLE t IS 'changed'", "comments"),
        ("CREATE POLICY p ON t", "policies"),
    ],
)
def test_table_altered_during_the_load_is_not_swapped(connection: Connection, change: str, part: str) -> None:
    """The change is reported. It stays, and so does the replacement."""
    connection.execute("CREATE TABLE t (a int)")
    definition, oid = prepare(connection, "t")
    connection.execute(change.encode())
    with pytest.raises(TargetError, match="altered") as caught:
        swap_replacement(connection, definition, oid)
    assert caught.value.detail == f"Changed: {part}."
    assert table_oid(connection, "t") == definition.oid
    assert drop_landing_table(connection, schema="public", name=NEW, oid=oid)


def test_table_made_anew_during_the_load_is_not_swapped(connection: Connection) -> None:
    """It has the name, and is another."""
    connection.execute("CREATE TABLE t (a int)")
    definition, oid = prepare(connection, "t")
    connection.execute("DROP TABLE t; CREATE TABLE t (a int)")
    with pytest.raises(TargetError, match="was replaced after the load was planned"):
        swap_replacement(connection, definition, oid)


def test_swap_that_would_lose_something_is_undone(connection: Connection) -> None:
    """The last look compares: a part of the new table came out otherwise."""
    connection.execute("CREATE TABLE t (id bigint GENERATED ALWAYS AS IDENTITY (MAXVALUE 100))")
    definition, oid = prepare(connection, "t")
    connection.execute(f'ALTER TABLE "{NEW}" ALTER id SET CACHE 7'.encode())
    with pytest.raises(ServerError, match="not like the old one") as caught:
        swap_replacement(connection, definition, oid)
    assert caught.value.detail == "They differ in: sequences. The old table is left as it was."
    assert table_oid(connection, "t") == definition.oid


@pytest.mark.parametrize("type_name", ["smallint", "integer", "bigint"])
def test_identity_keeps_its_type(connection: Connection, type_name: str) -> None:
    """LIKE gives each a bigint sequence."""
    connection.execute(f"CREATE TABLE t (id {type_name} GENERATED ALWAYS AS IDENTITY (INCREMENT -1))".encode())
    before = replace(connection, "t")
    assert capture(connection, "t") == before


def test_drop_leaves_a_table_that_is_in_use(connection: Connection) -> None:
    """After the swap the replacement has the table's name; what then has the working name is not ours."""
    connection.execute("CREATE TABLE t (a int)")
    definition, oid = prepare(connection, "t")
    swap_replacement(connection, definition, oid)
    assert not drop_landing_table(connection, schema="public", name=NEW, oid=oid)
    connection.execute(f'CREATE TABLE "{NEW}" ()'.encode())
    assert not drop_landing_table(connection, schema="public", name=NEW, oid=oid)
    assert table_oid(connection, "t") == oid


def test_long_names_do_not_meet(connection: Connection) -> None:
    """Names of 63 bytes leave no room for a suffix."""
    name = "ä" * 31
    connection.execute(f'CREATE TABLE "{name}" (id int CONSTRAINT "{name}k" PRIMARY KEY, a int)'.encode())
    connection.execute(f'CREATE INDEX "{name}i" ON "{name}" (a)'.encode())
    before = replace(connection, f'"{name}"')
    assert capture(connection, f'"{name}"') == before


@pytest.mark.pg(">= 15")
def test_tablespaces_are_kept(connection: Connection) -> None:
    """The table's and each index's, whatever default_tablespace says."""
    names = [f"ddl_{secrets.token_hex(4)}" for _ in range(2)]
    connection.execute("SET allow_in_place_tablespaces = on")
    for name in names:
        connection.execute(f"CREATE TABLESPACE {name} LOCATION ''".encode())
    connection.execute(
        f"CREATE TABLE t (a int PRIMARY KEY USING INDEX TABLESPACE {names[1]}, b int, c int4range,"
        f" EXCLUDE USING gist (c WITH &&) USING INDEX TABLESPACE {names[0]}) TABLESPACE {names[0]};"
        f"CREATE INDEX ON t (b) TABLESPACE {names[1]}; CREATE INDEX ON t (a, b);"
        f"SET default_tablespace = {names[1]}".encode()
    )
    try:
        before = replace(connection, "t")
        assert capture(connection, "t") == before
        assert {index.tablespace for index in before.indexes} == {*names, ""}
    finally:
        connection.execute("DROP TABLE t; RESET default_tablespace")
        for name in names:
            connection.execute(f"DROP TABLESPACE {name}".encode())


def test_access_method_is_kept(connection: Connection) -> None:
    """Whatever the session's default is."""
    connection.execute(
        "CREATE ACCESS METHOD pile TYPE TABLE HANDLER heap_tableam_handler; CREATE TABLE t (a int) USING pile"
    )
    before = replace(connection, "t")
    assert capture(connection, "t") == before
    assert before.table.access_method == "pile"
