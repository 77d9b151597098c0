"""What may follow ADD CONSTRAINT: a definition as the server writes it, and nothing behind it."""

from __future__ import annotations

import pytest

from penstock.changes.tables.parts import is_one_clause, read_referring_columns


@pytest.mark.parametrize(
    ("definition", "columns"),
    [
        ("FOREIGN KEY (a) REFERENCES public.t(id)", ["a"]),
        ("FOREIGN KEY (a, period) REFERENCES t(a, b) MATCH FULL ON UPDATE CASCADE", ["a", "period"]),
        ('FOREIGN KEY ("a, ""(") REFERENCES "s\'".t(a) ON DELETE SET NULL ("a, ""(")', ['"a, ""("']),
        ("FOREIGN KEY (z, PERIOD r) REFERENCES t(z, PERIOD r) NOT ENFORCED", ["z", "r"]),
        ("FOREIGN KEY (a) REFERENCES t(a) DEFERRABLE INITIALLY DEFERRED NOT VALID", ["a"]),
    ],
)
def test_foreign_keys_of_the_server_are_read(definition: str, columns: list[str]) -> None:
    """With all that they may have."""
    assert read_referring_columns(definition) == columns


@pytest.mark.parametrize(
    "definition",
    [
        "FOREIGN KEY (a) REFERENCES t(a), ADD COLUMN b int DEFAULT f()",
        "FOREIGN KEY (a) REFERENCES t(a); SELECT 1",
        "FOREIGN KEY (a) REFERENCES t(a) --",
        "CHECK (f())",
        "FOREIGN KEY (f(a)) REFERENCES t(a)",
        None,
        5,
    ],
)
def test_what_is_more_than_a_foreign_key_is_none(definition: object) -> None:
    """Nothing of it may run."""
    assert read_referring_columns(definition) is None


@pytest.mark.parametrize(
    "definition",
    [
        "EXCLUDE USING gist (c WITH &&, lower(b) WITH =) WHERE ((b <> 'x,''('::text)) DEFERRABLE",
        "EXCLUDE USING gist (((a ->> 'k'::text)) WITH =) INCLUDE (b, \"B, c\") WITH (fillfactor='70')",
        "EXCLUDE USING gist (room WITH =, (\nCASE\n    WHEN a THEN NULL::tsrange\n    ELSE b\nEND) WITH &&)",
        r"EXCLUDE USING gist ((ARRAY[a, 1]) WITH OPERATOR(public.&&)) WHERE ((b <> E'a\\b\'::text') AND (c > 1.5e+10))",
    ],
)
def test_exclusion_constraints_of_the_server_are_one_clause(definition: str) -> None:
    """Commas within parentheses and quotes part nothing."""
    assert is_one_clause(definition, "EXCLUDE ")


@pytest.mark.parametrize(
    "behind",
    [
        ", ADD COLUMN b int",
        "; SELECT 1",
        ") , (",
        " /* ( */",
        " -- (",
        " $$ ( $$",
        " WHERE ((b = '\\'), ADD CHECK (f('",
        # A string goes on behind a line's end as it began.
        " WHERE ((b = E''\n'\\'', ADD CHECK (f('')))",
        # Not ASCII: a letter to the server, so that what follows is no escape string.
        " WHERE ((b = \u00a0E'\\''))",
        " WHERE ((1E'\\''))",
    ],
)
def test_what_might_end_the_clause_is_not_let_through(behind: str) -> None:
    """However it is dressed up."""
    assert not is_one_clause(f"EXCLUDE USING gist (a WITH =){behind}", "EXCLUDE ")


def test_another_clause_is_not_let_through() -> None:
    """CHECK would be looked at with the rights of whoever repairs."""
    assert not is_one_clause("CHECK (f(a))", "EXCLUDE ")
