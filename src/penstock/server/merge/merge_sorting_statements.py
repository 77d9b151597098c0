"""The statements that sort the records of a merge, without the names of tables and columns (see merge_sorting.py)."""

from __future__ import annotations

from typing import Final

# The statement's text is composed before search_path changes to the user's.
STORE_COUNTED: Final = """
            statement := {head} || pg_catalog.quote_literal(sorting.lower) || {middle}
                || pg_catalog.quote_literal(sorting.upper) || {tail};
            {to_users};
            EXECUTE statement INTO plan;
            {to_own};
            affected := pg_catalog.json_extract_path_text(plan, '0', 'Plan', 'Actual Rows')::numeric;
            met := pg_catalog.json_extract_path_text(plan, '0', 'Plan', 'Conflicting Tuples')::numeric;
"""
STORE_ALL: Final = """
            statement := {head} || pg_catalog.quote_literal(sorting.lower) || {middle}
                || pg_catalog.quote_literal(sorting.upper) || {tail};
            {to_users};
            EXECUTE statement;
            GET DIAGNOSTICS affected = ROW_COUNT;
            {to_own};
"""
DECLARATIONS: Final = """
    statement text;
    plan json;
    met int8 := 0;
    conflicts int8 := 0;
    proposed int8 := 0;
    noted int8 := 0;
"""
COUNT: Final = """
            conflicts := conflicts + met;
            proposed := proposed + (last - first + 1);
"""
NOTE: Final = """
                INSERT INTO {refused} ({columns}, {reasons})
                SELECT {columns}, sorting.code, sorting.words, NULLIF(sorting.more, ''), NULLIF(sorting.field, '')
                  FROM {stage} AS s
                 WHERE s.ctid = sorting.places[sorting.bad];
                noted := noted + CASE WHEN sorting.code = {reference} THEN 0 ELSE 1 END;
"""
OUTCOME: Final = """
        pg_catalog.json_build_object('stored', stored, 'proposed', proposed, 'conflicts', conflicts, 'noted', noted)
"""

READ_REFUSED: Final = """
    SELECT r.{object}, r.{block}, n.penstock_record, r.{sqlstate}, r.{message}, r.{detail}, r.{column}
      FROM {refused} AS r
      JOIN (
               SELECT s.{object}, s.{block}, s.{sequence},
                      pg_catalog.row_number() OVER (PARTITION BY s.{object}, s.{block} ORDER BY s.{sequence})
                          AS penstock_record
                 FROM {staging} AS s
                 JOIN (SELECT DISTINCT b.{object}, b.{block} FROM {refused} AS b) AS b
                   ON b.{object} = s.{object} AND b.{block} = s.{block}
           ) AS n
        ON n.{object} = r.{object} AND n.{block} = r.{block} AND n.{sequence} = r.{sequence}
     ORDER BY r.{object}, r.{block}, r.{sequence}
"""

# If several refused records have one key, which is only possible for a key with nulls, the reason of any of them is
# used.
ADD_SAME_KEYS: Final = """
    INSERT INTO {refused} ({columns}, {reasons})
    SELECT DISTINCT ON (s.{object}, s.{block}, s.{sequence})
           {staged_columns}, r.{sqlstate}, {same_key} || r.{message}, r.{detail}, r.{column}
      FROM {staging} AS s
      JOIN {refused} AS r ON {same}
     WHERE NOT EXISTS (SELECT FROM {refused} AS r WHERE {same_position})
"""
TAKE_REFERENCES: Final = """
    WITH moved AS (
        DELETE FROM {refused} WHERE {sqlstate} = {reference} RETURNING {columns}
    )
    INSERT INTO {chosen} ({columns}) SELECT {columns} FROM moved ORDER BY {order}
"""
SAME_POSITION: Final = "r.{object} = s.{object} AND r.{block} = s.{block} AND r.{sequence} = s.{sequence}"
