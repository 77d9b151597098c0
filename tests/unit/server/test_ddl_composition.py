"""What a definition is turned into, without a server."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.server.ddl.compose_parts import compose_foreign_key, compose_index
from penstock.server.ddl.compose_table import compose_column, compose_column_settings, compose_create, compose_options
from penstock.server.ddl.compose_words import compose_grant, compose_labels, order_grants
from penstock.server.ddl.definition import (
    ColumnRow,
    ConstraintRow,
    Grant,
    IndexRow,
    LabelRow,
    SequenceRow,
    SequenceState,
    TableDefinition,
    TableRow,
    find_differences,
)
from penstock.server.ddl.names import WorkingNames, choose_names
from penstock.server.ddl.swap import choose_state


def table_row(**fields: Any) -> TableRow:
    """Return a plain table."""
    plain: dict[str, Any] = {
        "oid": 1,
        "name": "T a",
        "schema": "s",
        "quoted_name": 's."T a"',
        "kind": "r",
        "owner": "o",
        "persistence": "p",
        "access_method": "heap",
        "tablespace": "",
        "options": [],
        "toast_options": [],
        "replica_identity": "d",
        "has_row_security": False,
        "forces_row_security": False,
        "is_partition": False,
        "of_type": None,
        "parents": [],
        "comment": None,
    }
    return TableRow(**(plain | fields))


def definition(table: TableRow | None = None, **parts: Any) -> TableDefinition:
    """Return a definition with these parts alone."""
    empty: dict[str, Any] = dict.fromkeys(
        (
            "columns",
            "sequences",
            "sequence_states",
            "indexes",
            "constraints",
            "grants",
            "policies",
            "triggers",
            "rules",
            "statistics",
            "publications",
            "labels",
        ),
        (),
    )
    return TableDefinition(table=table or table_row(), **(empty | parts))


def column(**fields: Any) -> ColumnRow:
    """Return a plain column."""
    plain: dict[str, Any] = {
        "name": "Col",
        "type_name": "integer",
        "collation": None,
        "is_not_null": False,
        "expression": None,
        "generated": "",
        "identity": "",
        "storage": None,
        "compression": None,
        "statistics_target": None,
        "options": [],
        "comment": None,
    }
    return ColumnRow(**(plain | fields))


def constraint(**fields: Any) -> ConstraintRow:
    """Return a valid constraint."""
    plain: dict[str, Any] = {
        "name": "k",
        "kind": "u",
        "definition": "UNIQUE (a)",
        "self_reference_head": None,
        "is_deferrable": False,
        "is_deferred": False,
        "is_validated": True,
        "is_enforced": True,
        "is_temporal": False,
        "comment": None,
    }
    return ConstraintRow(**(plain | fields))


def index(**fields: Any) -> IndexRow:
    """Return a plain index."""
    plain: dict[str, Any] = {
        "name": "i",
        "is_unique": False,
        "body": "USING btree (a)",
        "constraint_name": None,
        "tablespace": "",
        "options": [],
        "is_clustered": False,
        "is_replica_identity": False,
        "statistics_targets": [None],
        "comment": None,
    }
    return IndexRow(**(plain | fields))


def grant(grantee: str | None, grantor: str = "o", **fields: Any) -> Grant:
    """Return the grant of SELECT on a table that o owns."""
    plain: dict[str, Any] = {"sequence": None, "column": None, "privilege": "SELECT", "is_grantable": False}
    return Grant(**(plain | {"grantee": grantee, "grantor": grantor, "is_by_owner": grantor == "o"} | fields))


SEQUENCE = SequenceRow(
    oid=2,
    name="q",
    quoted_name="s.q",
    column="Col",
    is_identity=True,
    type_name="integer",
    start=-1,
    increment=-2,
    minimum=-99,
    maximum=-1,
    cache=1,
    is_cycled=True,
    comment=None,
)
NAMES = WorkingNames(
    schema="s", table="new", indexes={"i": "n_i", "k": "n_k"}, statistics={}, sequences={"Col": "s.new_q"}
)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, '"Col" integer'),
        ({"expression": "nextval('s.q'::regclass)"}, "\"Col\" integer DEFAULT nextval('s.q'::regclass)"),
        ({"expression": "a * 2", "generated": "v"}, '"Col" integer GENERATED ALWAYS AS (a * 2) VIRTUAL'),
        (
            {"type_name": "text", "collation": 'pg_catalog."C"', "is_not_null": True},
            '"Col" text COLLATE pg_catalog."C" NOT NULL',
        ),
    ],
)
def test_column_reads_as_in_create_table(fields: dict[str, Any], expected: str) -> None:
    """Expressions, types and collations are the server's text; names are quoted."""
    assert compose_column(column(**fields), None, says_not_null=True).as_string(None) == expected


def test_identity_has_its_sequences_options() -> None:
    """All of them, so that no default of another version matters."""
    assert compose_column(column(identity="d"), SEQUENCE, says_not_null=True).as_string(None) == (
        '"Col" integer GENERATED BY DEFAULT AS IDENTITY'
        " (START WITH -1 INCREMENT BY -2 MINVALUE -99 MAXVALUE -1 CACHE 1 CYCLE)"
    )


def test_create_table_names_storage() -> None:
    """Options of the table and of its TOAST table, access method, tablespace, UNLOGGED."""
    table = table_row(
        persistence="u", tablespace="fast disk", options=["fillfactor=70"], toast_options=["autovacuum_enabled=off"]
    )
    statement = compose_create(definition(table, columns=(column(),)), "new")
    assert statement.as_string(None) == (
        'CREATE UNLOGGED TABLE "s"."new" ("Col" integer) USING "heap"'
        """ WITH ("fillfactor" = '70', toast."autovacuum_enabled" = 'off') TABLESPACE "fast disk\""""
    )


def test_valid_not_null_constraints_keep_their_names() -> None:
    """From PostgreSQL 18 on; one that is not valid comes after the load."""
    found = definition(
        columns=(column(is_not_null=True),),
        constraints=(
            constraint(name="n 1", kind="n", definition='NOT NULL "Col"'),
            constraint(name="n 2", kind="n", definition="NOT NULL b NOT VALID", is_validated=False),
        ),
    )
    text = compose_create(found, "new").as_string(None)
    assert '("Col" integer, CONSTRAINT "n 1" NOT NULL "Col")' in text


def test_column_settings_are_those_that_differ() -> None:
    """A plain column needs none."""
    assert compose_column_settings(column(), NAMES.qualified) == []
    settings = compose_column_settings(column(storage="m", compression="l", statistics_target=0), NAMES.qualified)
    assert [statement.as_string(None).partition("SET ")[2] for statement in settings] == [
        "STORAGE MAIN",
        "COMPRESSION lz4",
        "STATISTICS 0",
    ]


def test_options_are_cut_at_the_first_equals_sign() -> None:
    """A value may hold another."""
    assert compose_options(["a=b=c"])[0].as_string(None) == "\"a\" = 'b=c'"


def test_unique_constraint_takes_its_index_over() -> None:
    """It is deferrable as it was."""
    found = compose_index(
        index(name="k", is_unique=True, constraint_name="k"),
        constraint(is_deferrable=True, is_deferred=True),
        NAMES,
    )
    assert [statement.as_string(None) for statement in found] == [
        'CREATE UNIQUE INDEX "n_k" ON "s"."new" USING btree (a)',
        'ALTER TABLE "s"."new" ADD CONSTRAINT "n_k" UNIQUE USING INDEX "n_k" DEFERRABLE INITIALLY DEFERRED',
    ]


def test_exclusion_constraint_makes_its_index() -> None:
    """Storage parameters follow."""
    found = compose_index(
        index(name="k", constraint_name="k", options=["fillfactor=50"]),
        constraint(kind="x", definition="EXCLUDE USING gist (r WITH &&)"),
        NAMES,
    )
    assert [statement.as_string(None) for statement in found] == [
        'ALTER TABLE "s"."new" ADD CONSTRAINT "n_k" EXCLUDE USING gist (r WITH &&)',
        'ALTER INDEX "s"."n_k" SET ("fillfactor" = \'50\')',
    ]


def test_foreign_key_to_itself_refers_to_the_new_table() -> None:
    """Also where a column's name looks like the table's."""
    head = 'FOREIGN KEY (" REFERENCES s.""T a""(") REFERENCES '
    key = constraint(kind="f", definition=f'{head}s."T a"(id)', self_reference_head=head)
    add, validate = compose_foreign_key(key, definition(), NAMES)
    assert add.as_string(None) == f'ALTER TABLE "s"."new" ADD CONSTRAINT "k" {head}"s"."new"(id) NOT VALID'
    assert validate is not None
    assert validate.as_string(None) == 'ALTER TABLE "s"."new" VALIDATE CONSTRAINT "k"'


@pytest.mark.parametrize("fields", [{"is_validated": False}, {"is_validated": False, "is_enforced": False}])
def test_foreign_key_that_was_not_valid_stays_so(fields: dict[str, bool]) -> None:
    """Its definition says so itself."""
    key = constraint(kind="f", definition="FOREIGN KEY (a) REFERENCES s.p(id) NOT VALID", **fields)
    add, validate = compose_foreign_key(key, definition(), NAMES)
    assert add.as_string(None).endswith('ADD CONSTRAINT "k" FOREIGN KEY (a) REFERENCES s.p(id) NOT VALID')
    assert validate is None


def test_grants_follow_the_grant_options_they_stand_on() -> None:
    """A catalogue may list them the other way round."""
    given = grant("c", "b")
    passed_on = grant("b", "a", is_grantable=True)
    first = grant("a", is_grantable=True)
    of_column = grant("d", "c", column="x", privilege="UPDATE")
    ground = grant("c", privilege="UPDATE", is_grantable=True)
    assert order_grants([given, of_column, passed_on, first, ground]) == [first, ground, of_column, passed_on, given]


def test_grant_without_ground_is_kept() -> None:
    """The server refuses it in its own words."""
    assert order_grants([grant("c", "b")]) == [grant("c", "b")]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (grant(None), 'GRANT SELECT ON TABLE "s"."new" TO PUBLIC'),
        (grant("PUBLIC", is_grantable=True), 'GRANT SELECT ON TABLE "s"."new" TO "PUBLIC" WITH GRANT OPTION'),
        (grant("r", column="Col"), 'GRANT SELECT ("Col") ON TABLE "s"."new" TO "r"'),
        (grant("r", sequence="q"), 'GRANT SELECT ON SEQUENCE s.new_q TO "r"'),
    ],
)
def test_grant_is_on_the_new_table(given: Grant, expected: str) -> None:
    """On its columns and its identity's sequence too; a role may be named like PUBLIC."""
    assert compose_grant(given, definition(sequences=(SEQUENCE,)), NAMES).as_string(None) == expected


def test_security_labels_name_their_provider() -> None:
    """No provider ships with PostgreSQL, so no server test can say this."""
    labels = (
        LabelRow(provider="selinux", column=None, label="x'y"),
        LabelRow(provider="anon", column="Col", label="MASKED"),
    )
    assert [statement.as_string(None) for statement in compose_labels(definition(labels=labels), NAMES)] == [
        'SECURITY LABEL FOR "selinux" ON TABLE "s"."new" IS \'x\'\'y\'',
        'SECURITY LABEL FOR "anon" ON COLUMN "s"."new"."Col" IS \'MASKED\'',
    ]


@pytest.mark.parametrize(
    ("old", "new", "increment", "expected"),
    [
        ((5, True), (3, True), 1, (5, True)),
        ((5, True), (9, True), 1, (9, True)),
        ((-5, True), (-9, True), -2, (-9, True)),
        ((1, False), (1, True), 1, (1, True)),
        ((1, False), (1, False), 1, (1, False)),
    ],
)
def test_sequence_stands_where_no_value_comes_again(
    old: tuple[int, bool], new: tuple[int, bool], increment: int, expected: tuple[int, bool]
) -> None:
    """Further along is further in the direction it counts."""
    states = [SequenceState(name="q", last_value=value, is_called=is_called) for value, is_called in (old, new)]
    state = choose_state(*states, increment=increment)
    assert (state.last_value, state.is_called) == expected


def test_oids_and_states_make_no_difference() -> None:
    """All else does."""
    first = definition(sequence_states=(SequenceState(name="q", last_value=1, is_called=True),))
    second = definition(table_row(oid=77))
    assert first == second
    assert find_differences(first, second) == ()
    assert find_differences(first, definition(table_row(comment="x"), columns=(column(),))) == ("table", "columns")


def test_working_names_are_short_and_the_replacements_own() -> None:
    """However long the old names are."""
    found = definition(indexes=(index(name="ä" * 31),))
    names = choose_names(found, definition(table_row(oid=4_294_967_295, name="new")))
    assert names.indexes == {"ä" * 31: "penstock_4294967295_index_1"}
    assert names.table == "new"
