"""The statements that sort records on the server, without the names of tables and columns (see sorting.py).

Statements that convert and store values run with the user's search_path, so operators in them are schema-qualified.
"""

from __future__ import annotations

from typing import Final

HAS_RIGHTS: Final = """
    SELECT pg_catalog.has_database_privilege(pg_catalog.current_database(), 'TEMPORARY')
           AND EXISTS (
                   SELECT
                     FROM pg_catalog.pg_language AS l
                    WHERE l.lanname = 'plpgsql'
                      AND pg_catalog.has_language_privilege(l.oid, 'USAGE')
               )
"""

# The sequence counts the records that a stretch has begun, because a sequence is not rolled back. It has a large cache:
# without one, each nextval takes as long as a small INSERT.
MAKE: Final = """
    {drop}
    CREATE TABLE {stage} ({texts}) ON COMMIT DROP;
    CREATE TABLE {typed} ({columns}) ON COMMIT DROP;
    CREATE SEQUENCE {counter} CACHE 1000 OWNED BY {stage}.{first}
"""

# If a column and a variable have the same name, the name means the column. Variables are qualified with the block's
# name. {to_users} and {to_own} are search_path.SETTINGS. After an error between them, the savepoint restores the
# search_path.
SORT: Final = """
#variable_conflict use_column
<<sorting>>
DECLARE
    places CONSTANT tid[] := ARRAY(SELECT s.ctid FROM {stage} AS s {portion});
    total CONSTANT int4 := pg_catalog.cardinality(places);
    counter CONSTANT regclass := {counter};
    size int4 := {size};
    weight int8 := 1;
    first int4 := 1;
    last int4;
    lower tid;
    upper tid;
    counted int8;
    begun int8;
    bad int4;
    is_own boolean;
    stored int8 := 0;
    affected int8;
    code text;
    words text;
    more text;
    field text;
    refusing text;
    advice text;
    outcome json[] := '{{}}';
    {declarations}
BEGIN
    counted := pg_catalog.nextval(counter);
    WHILE first <= total LOOP
        last := LEAST(first + size - 1, total);
        lower := places[first];
        upper := places[last];
        code := NULL;
        BEGIN
            {store}
        EXCEPTION WHEN OTHERS OR ASSERT_FAILURE THEN
            GET STACKED DIAGNOSTICS
                code = RETURNED_SQLSTATE,
                words = MESSAGE_TEXT,
                more = PG_EXCEPTION_DETAIL,
                field = COLUMN_NAME,
                refusing = PG_DATATYPE_NAME;
            is_own := code ~ {own_codes} AND code <> ALL ({other_codes});
            bad := first + GREATEST(pg_catalog.currval(counter) - counted, 1) - 1;
            {find_field}
            IF NOT is_own THEN
                -- Not a record's fault: end the statement, and name the record by its position if that is known.
                IF first < last AND bad = last THEN
                    RAISE;
                END IF;
                GET STACKED DIAGNOSTICS advice = PG_EXCEPTION_HINT;
                RAISE USING ERRCODE = code, MESSAGE = words, DETAIL = more, HINT = advice, DATATYPE = bad;
            END IF;
        END;
        begun := pg_catalog.currval(counter) - counted;
        counted := counted + begun;
        IF code IS NULL THEN
            stored := stored + affected;
            {after_stretch}
            first := last + 1;
            size := LEAST(2 * size, {most}, GREATEST(1, pg_catalog.sqrt({factor}::float8 * first / weight)));
        ELSIF first = last OR begun = 1 THEN
            bad := first;
            weight := weight + CASE WHEN first = last THEN {whole_weight} ELSE 1 END;
            {note}
            first := first + 1;
        ELSIF begun > 1 AND bad < last THEN
            -- Store the records before it first: it may violate the key of one that is refused itself.
            size := begun - 1;
        ELSE
            -- The record is not known, because foreign keys are checked when the statement ends.
            size := (last - first + 1) / 2;
        END IF;
    END LOOP;
    PERFORM pg_catalog.set_config('penstock.outcome', {outcome}::text, true);
END sorting
"""

# STORE stores a stretch by INSERT alone. NOTE and OUTCOME record its refused records, and TAKE_OUTCOME reads them.
STORE: Final = """
            {to_users};
            INSERT INTO {target} ({names}) OVERRIDING SYSTEM VALUE
            {select};
            GET DIAGNOSTICS affected = ROW_COUNT;
            {to_own};
"""
STRETCH: Final = """
s.ctid OPERATOR(pg_catalog.>=) sorting.lower
               AND s.ctid OPERATOR(pg_catalog.<=) sorting.upper
               AND pg_catalog.nextval(sorting.counter) OPERATOR(pg_catalog.>) 0
"""
NOTE: Final = "outcome := outcome || pg_catalog.json_build_array(bad, code, words, more, field);"
OUTCOME: Final = "pg_catalog.json_build_object('stored', stored, 'refused', pg_catalog.to_json(outcome))"
# The outcome is returned as bytes, because in SQL_ASCII its texts may not be valid in any encoding.
TAKE_OUTCOME: Final = """
    SELECT pg_catalog.convert_to(
               pg_catalog.current_setting('penstock.outcome'),
               CASE pg_catalog.getdatabaseencoding() WHEN 'SQL_ASCII' THEN 'SQL_ASCII' ELSE 'UTF8' END
           );
    SELECT pg_catalog.set_config('penstock.outcome', '', true);
    TRUNCATE {stage}
"""

SELECT: Final = """
            SELECT {values}
              FROM {stage} AS s
             WHERE {rows}
"""

# The input function of a composite type calls the input function of each column, as COPY does.
SELECT_RECORD: Final = """
            SELECT {values}
              FROM (
                       SELECT s.*,
                              CAST(CAST(ROW({fields}) AS pg_catalog.text) AS {typed}) AS penstock_record
                         FROM {stage} AS s
                        WHERE {rows}
                       OFFSET 0
                   ) AS s
"""

# To find the field that a type refuses, each field is converted alone. That also shows whether a type has raised the
# error: some types raise SQLSTATEs that mean something else for a statement. A domain's CHECK reports the domain's
# name.
FIND_FIELD: Final = """
            IF field = '' AND (NOT is_own OR bad = first AND (code LIKE '22%' OR code = '54001' OR refusing <> '')) THEN
                DECLARE
                    fields CONSTANT text[] := (
                        SELECT ARRAY[{values}]
                          FROM {stage} AS s
                         WHERE s.ctid = sorting.places[sorting.bad]
                    );
                    names CONSTANT text[] := {names};
                    quoted text;
                BEGIN
                    FOR number IN 1 .. pg_catalog.cardinality(names) LOOP
                        CONTINUE WHEN fields[number] IS NULL;
                        quoted := pg_catalog.replace(pg_catalog.replace(fields[number], '\\', '\\\\'), '"', '\\"');
                        BEGIN
                            {to_users};
                            PERFORM CAST(
                                pg_catalog.concat(
                                    '(',
                                    pg_catalog.repeat(',', number OPERATOR(pg_catalog.-) 1),
                                    '"',
                                    quoted,
                                    '"',
                                    pg_catalog.repeat(',', pg_catalog.cardinality(names) OPERATOR(pg_catalog.-) number),
                                    ')'
                                ) AS {typed}
                            );
                            {to_own};
                        EXCEPTION WHEN OTHERS THEN
                            -- Several fields may have an error with this SQLSTATE. The message text tells which one was
                            -- reported.
                            IF SQLSTATE = code AND (field = '' OR SQLERRM = words) THEN
                                field := names[number];
                                is_own := true;
                                EXIT WHEN SQLERRM = words;
                            END IF;
                        END;
                    END LOOP;
                END;
            END IF;
"""
