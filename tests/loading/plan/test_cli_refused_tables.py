"""What a table, its rights or publications rule out is refused by the plan and by doctor, as by the load."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from penstock.core.errors import DataError
from penstock.core.slotted import slotted
from support.files import write_to
from support.loads import Loads, share_ledger, target
from support.parts import rest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from support.command import Finished

    Run = Callable[..., Finished]


@slotted
class Refused:
    """A load that is refused: what makes it so, its options, and how the message begins."""

    setup: str
    message: str
    options: str = ""
    # What the role is granted, None if the table's owner loads.
    grants: str | None = None
    lines: str = "a,b\n1,x\n"
    into: str = "t"


_KEYED = "CREATE TABLE t (a int PRIMARY KEY, b text);"
_PLAIN = "CREATE TABLE t (a int, b text);"
_UPSERT, _SYNC = "--mode upsert --key a", "--mode sync --key a"
_ROWS = _KEYED + "INSERT INTO t VALUES (1), (2);"

REFUSED = {
    "sync without DELETE": Refused(
        setup=_KEYED, options=_SYNC, grants="SELECT, INSERT, UPDATE ON t", message="permission denied for table"
    ),
    "upsert without UPDATE": Refused(
        setup=_KEYED, options=_UPSERT, grants="SELECT, INSERT ON t", message="permission denied for table"
    ),
    "upsert without SELECT of the key": Refused(
        setup=_KEYED, options=_UPSERT, grants="SELECT (b), INSERT, UPDATE ON t", message="permission denied for table"
    ),
    "no INSERT on one column": Refused(setup=_PLAIN, grants="INSERT (a) ON t", message="permission denied for table"),
    "no INSERT on one column of a merge": Refused(
        setup=_KEYED, options=_UPSERT, grants="SELECT, UPDATE, INSERT (a) ON t", message="permission denied for table"
    ),
    "no replica identity": Refused(
        setup="CREATE TABLE t (a int UNIQUE NOT NULL, b text); CREATE PUBLICATION p FOR TABLE t;",
        options=_UPSERT,
        message="cannot update table",
    ),
    "no replica identity, deletions": Refused(
        setup="CREATE TABLE t (a int UNIQUE NOT NULL, b text);"
        "CREATE PUBLICATION p FOR TABLE t WITH (publish = 'insert, delete');",
        options=_SYNC,
        message="cannot delete from table",
    ),
    "a partition without replica identity": Refused(
        setup="CREATE TABLE t (a int PRIMARY KEY, b text) PARTITION BY RANGE (a);"
        "CREATE TABLE t1 PARTITION OF t FOR VALUES FROM (0) TO (10); CREATE TABLE t2 PARTITION OF t DEFAULT;"
        "ALTER TABLE t2 REPLICA IDENTITY NOTHING; CREATE PUBLICATION p FOR TABLE t;",
        options=_UPSERT,
        message="cannot update table",
    ),
    "a rule on INSERT, truncate": Refused(
        setup=_ROWS + "CREATE RULE r AS ON INSERT TO t DO INSTEAD NOTHING;",
        options="--mode truncate --atomic",
        message="cannot load into table",
    ),
    "a conditional rule on INSERT, row security": Refused(
        setup=_PLAIN + "CREATE RULE r AS ON INSERT TO t WHERE NEW.a > 5 DO INSTEAD NOTHING;"
        "ALTER TABLE t ENABLE ROW LEVEL SECURITY; CREATE POLICY p ON t USING (true);",
        grants="SELECT, INSERT ON t",
        message="cannot load into table",
    ),
    "a rule on UPDATE": Refused(
        setup=_KEYED + "CREATE RULE r AS ON UPDATE TO t DO ALSO NOTHING;",
        options="--mode insert-new --key a",
        message="cannot load into table",
    ),
    "a disabled rule on UPDATE": Refused(
        setup=_KEYED + "CREATE RULE r AS ON UPDATE TO t DO INSTEAD NOTHING; ALTER TABLE t DISABLE RULE r;",
        options=_UPSERT,
        message="cannot load into table",
    ),
    "a rule on DELETE": Refused(
        setup=_KEYED + "CREATE RULE r AS ON DELETE TO t DO INSTEAD NOTHING;", options=_SYNC, message="cannot load into"
    ),
    "truncate without TRUNCATE": Refused(
        setup=_PLAIN, options="--mode truncate", grants="INSERT ON t", message="permission denied for table"
    ),
    "truncate of a referenced table": Refused(
        setup=_KEYED + "CREATE TABLE u (a int REFERENCES t);",
        options="--mode truncate",
        message="cannot truncate table",
    ),
    "truncate of a view": Refused(
        setup=_PLAIN + "ALTER TABLE t RENAME TO u; CREATE VIEW t AS SELECT * FROM u;"
        "CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END';"
        "CREATE TRIGGER g INSTEAD OF INSERT ON t FOR EACH ROW EXECUTE FUNCTION f();",
        options="--mode truncate",
        message="cannot truncate",
    ),
    "a view without a trigger": Refused(
        setup=_PLAIN + "ALTER TABLE t RENAME TO u; CREATE VIEW t AS SELECT * FROM u;", message="cannot load into view"
    ),
    "a materialized view": Refused(
        setup="CREATE MATERIALIZED VIEW t AS SELECT 1 AS a, 'x'::text AS b;", message="cannot load into"
    ),
    "replace by another role": Refused(
        setup=_PLAIN, options="--mode replace", grants="SELECT, INSERT ON t", message="cannot replace"
    ),
    "replace of a table with a view": Refused(
        setup=_PLAIN + "CREATE VIEW v AS SELECT * FROM t;", options="--mode replace", message="cannot replace"
    ),
    "replace with row security": Refused(
        setup=_PLAIN + "ALTER TABLE t ENABLE ROW LEVEL SECURITY;",
        options="--mode replace",
        grants="SELECT, INSERT ON t",
        message="cannot replace",
    ),
    "no unique index": Refused(setup=_PLAIN, options=_UPSERT, message="no unique index"),
    "a deferrable key": Refused(
        setup="CREATE TABLE t (a int PRIMARY KEY DEFERRABLE, b text);",
        options=_UPSERT,
        message="records cannot be merged by (a)",
    ),
    "a key that the file lacks": Refused(
        setup="CREATE TABLE t (a int, b text, c int PRIMARY KEY);",
        options="--mode upsert --key c",
        message='column "c"',
    ),
    "an identity that would be updated": Refused(
        setup="CREATE TABLE t (a int PRIMARY KEY, b int GENERATED ALWAYS AS IDENTITY);",
        options=_UPSERT,
        lines="a,b\n1,2\n",
        message='column "b" is GENERATED ALWAYS AS IDENTITY',
    ),
    "a column that the server computes": Refused(
        setup="CREATE TABLE t (a int, b text GENERATED ALWAYS AS ('x') STORED);", message='column "b"'
    ),
    "a column that does not exist": Refused(setup="CREATE TABLE t (a int);", message='column "b"'),
    "a NOT NULL column that the file lacks": Refused(
        setup="CREATE TABLE t (a int, b text, c int NOT NULL);", message='column "c"'
    ),
    "a sequence that the role may not use": Refused(
        setup="CREATE TABLE t (a int, b text, c serial);",
        grants="INSERT ON t",
        message="permission denied for sequence",
    ),
    "triggers of another role's table": Refused(
        setup=_PLAIN, options="--triggers disable", grants="INSERT ON t", message="--triggers disable needs the owner"
    ),
    "columns added to another role's table": Refused(
        setup="CREATE TABLE t (a int);", options="--add-columns", grants="INSERT ON t", message="must be owner of table"
    ),
    "columns named as those of staging tables": Refused(
        setup="CREATE TABLE t (a int PRIMARY KEY, penstock_seq text);",
        options=_UPSERT,
        lines="a,penstock_seq\n1,x\n",
        message='column "penstock_seq" of the file',
    ),
    "a type that the role may not use": Refused(
        setup="CREATE DOMAIN d AS text; REVOKE USAGE ON TYPE d FROM PUBLIC;CREATE TABLE t (a int PRIMARY KEY, b d);",
        options=_UPSERT,
        grants="SELECT, INSERT, UPDATE ON t",
        message="permission denied for type",
    ),
    "a publication for all tables": Refused(
        setup=_KEYED + "CREATE PUBLICATION p FOR ALL TABLES;",
        options=_UPSERT,
        message="a table that this load creates would stop",
    ),
    "a publication for all tables, replace": Refused(
        setup=_KEYED + "CREATE PUBLICATION p FOR ALL TABLES;",
        options="--mode replace",
        message="a table that this load creates would stop",
    ),
    "no right to create a table in the schema": Refused(
        setup="CREATE SCHEMA s;",
        options="--create",
        grants="USAGE ON SCHEMA s",
        into="s.t",
        message='permission denied to create table "s.t"',
    ),
    "no right on the schema": Refused(
        setup="CREATE SCHEMA s; CREATE TABLE s.t (a int, b text);",
        grants="INSERT ON s.t",
        into="s.t",
        message="permission denied",
    ),
}


@pytest.fixture
def clerk(database18: str) -> Iterator[str]:
    """Provide the database as a role that may use the ledger, and nothing else."""
    loads = Loads(database18)
    with psycopg.connect(database18, autocommit=True) as admin:
        name = f"clerk_{admin.info.backend_pid}"
        admin.execute(f"CREATE ROLE {name} LOGIN".encode())
        share_ledger(loads, name)
        admin.execute(f"GRANT CREATE ON SCHEMA penstock TO {name}".encode())
        yield make_conninfo(database18, user=name)
        admin.execute(f"DROP OWNED BY {name} CASCADE".encode())
        admin.execute(f"DROP ROLE {name}".encode())


# The others take a minute together.
_MAIN = ("sync without DELETE", "no replica identity", "a rule on INSERT, truncate", "a publication for all tables")


@pytest.mark.parametrize("case", [case if case in _MAIN else rest(case) for case in REFUSED])
def test_plan_and_doctor_refuse_what_the_load_refuses(
    penstock: Run, database18: str, clerk: str, tmp_path: Path, case: str
) -> None:
    """With the same message, and before a row is read from the file beyond its beginning."""
    refused, loads = REFUSED[case], Loads(database18)
    loads.execute(refused.setup)
    if refused.grants is not None:
        loads.execute(f"GRANT {refused.grants} TO {conninfo_to_dict(clerk)['user']}")
    path = write_to(tmp_path / "file.csv", refused.lines)
    to = database18 if refused.grants is None else clerk
    message = _refuse(penstock, str(path), "--into", refused.into, "--to", to, *shlex.split(refused.options))
    assert message.startswith(refused.message)


@pytest.mark.part("rest")
@pytest.mark.parametrize("mode", ["truncate", "replace"])
def test_plan_and_doctor_refuse_to_empty_the_table_of_a_load_that_has_not_ended(
    penstock: Run, database18: str, tmp_path: Path, mode: str
) -> None:
    """It has committed rows, and would be resumed without them."""
    loads = Loads(database18, piece_bytes=64, setup="CREATE TABLE t (a int)")
    records = "".join(f"{number}\n" for number in range(100))
    with pytest.raises(DataError):
        loads.run(target(write_to(tmp_path / "bad.csv", f"{records}x\n"), columns=("a",)), batch_bytes=1)
    path = write_to(tmp_path / "file.csv", "a\n1\n")
    message = _refuse(penstock, str(path), "--into", "t", "--to", database18, "--mode", mode)
    assert message == f'cannot {mode} table "public.t": another load into it has not ended'


def _refuse(penstock: Run, *command: str) -> str:
    """Return the message with which a load ends; its plan ends alike, and doctor shows that it would not load."""
    planned, loaded = penstock("load", *command, "--plan"), penstock("load", *command)
    (first,) = (line for line in loaded.err.splitlines() if line.startswith("error: "))
    assert first in planned.err.splitlines()
    assert (planned.code, penstock("doctor", "--for", *command).code) == (loaded.code, 9)
    return first.removeprefix("error: ")
