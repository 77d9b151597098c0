"""The statements by which the server sorts records out, with the names of tables and columns left open (sorting.py)."""

from __future__ import annotations

from typing import Final

MAKE: Final = """
    SAVEPOINT penstock_sorting;
    {drop}
    CREATE TABLE {stage} ({columns}) ON COMMIT DROP;
    {typed}
    CREATE SEQUENCE {counter} CACHE {cache} OWNED BY {stage}.{first};
    RELEASE SAVEPOINT penstock_sorting
"""

DISCARD: Final = "ROLLBACK TO SAVEPOINT penstock_sorting; RELEASE SAVEPOINT penstock_sorting"

# Names of a column win over those of a variable, and the block's name tells the latter apart.
SORT: Final = """
#variable_conflict use_column
<<sorting>>
DECLARE
    places CONSTANT tid[] := ARRAY(SELECT s.ctid FROM {stage} AS s);
    total CONSTANT int4 := pg_catalog.cardinality(places);
    counter CONSTANT regclass := {counter};
    first int4 := 1;
    last int4;
    lower tid;
    upper tid;
    size int4 := 16;
    parked int4 := 1;
    barriers int4[] := '{{}}';
    depth int4 := 0;
    counted int8;
    begun int8;
    is_stored boolean;
    stored int8 := 0;
    best int4;
    affected int8;
    bad int4;
    weight int4 := 1;
    code text;
    words text;
    more text;
    field text;
    outcome json[] := '{{}}';
BEGIN
    counted := pg_catalog.nextval(counter);
    WHILE first <= total LOOP
        last := LEAST(first + size - 1, total);
        IF depth > 0 THEN
            last := LEAST(last, barriers[depth] - 1);
        END IF;
        lower := places[first];
        upper := places[last];
        BEGIN
            INSERT INTO {target} ({names}) OVERRIDING SYSTEM VALUE
            {select};
            GET DIAGNOSTICS affected = ROW_COUNT;
            is_stored := true;
        EXCEPTION WHEN OTHERS OR ASSERT_FAILURE THEN
            GET STACKED DIAGNOSTICS
                code = RETURNED_SQLSTATE,
                words = MESSAGE_TEXT,
                more = PG_EXCEPTION_DETAIL,
                field = COLUMN_NAME;
            IF code !~ {own_codes} OR code = ANY ({other_codes}) THEN
                RAISE;
            END IF;
            is_stored := false;
        END;
        begun := pg_catalog.currval(counter) - counted;
        counted := counted + begun;
        IF is_stored THEN
            stored := stored + affected;
            first := last + 1;
            best := pg_catalog.sqrt({factor}::float8 * first / weight);
            size := LEAST(2 * size, {most}, GREATEST(1, best));
            parked := 1;
        ELSIF {parks} AND code = '23503' AND begun = last - first + 1 AND begun <= parked THEN
            weight := weight + {whole_weight};
            FOR parked_one IN first .. last LOOP
                outcome := outcome || pg_catalog.json_build_array(parked_one, code, words, more, field);
            END LOOP;
            first := last + 1;
            parked := LEAST(2 * parked, {most_parked});
            size := parked;
        ELSIF begun > 1 AND first + begun - 1 < last AND code IN ('23505', '23P01') THEN
            -- Perhaps by a row of this very group that does not stay: the rows before it come first.
            size := begun - 1;
            weight := weight + 1;
        ELSIF first = last OR (begun > 0 AND first + begun - 1 < last) THEN
            bad := first + GREATEST(begun, 1) - 1;
            weight := weight + CASE WHEN first = last THEN {whole_weight} ELSE 1 END;
            {find_field}
            outcome := outcome || pg_catalog.json_build_array(bad, code, words, more, field);
            IF bad = first THEN
                first := first + 1;
            ELSE
                depth := depth + 1;
                barriers[depth] := bad;
            END IF;
        ELSE
            size := (last - first + 1) / 2;
        END IF;
        IF depth > 0 AND first = barriers[depth] THEN
            first := first + 1;
            depth := depth - 1;
        END IF;
    END LOOP;
    PERFORM pg_catalog.set_config(
        'penstock.outcome',
        pg_catalog.json_build_object('stored', stored, 'refused', pg_catalog.to_json(outcome))::text,
        true
    );
END sorting
"""

SELECT: Final = """
            SELECT {values}
              FROM {stage} AS s
             WHERE s.ctid >= sorting.lower
               AND s.ctid <= sorting.upper
               AND pg_catalog.nextval(sorting.counter) > 0
"""

# What a composite type reads in its text form it reads by each column's input function, as COPY does.
SELECT_RECORD: Final = """
            SELECT {values}
              FROM (
                       SELECT s.*,
                              CAST(CAST(ROW({fields}) AS text) AS {typed}) AS penstock_record
                         FROM {stage} AS s
                        WHERE s.ctid >= sorting.lower
                          AND s.ctid <= sorting.upper
                          AND pg_catalog.nextval(sorting.counter) > 0
                       OFFSET 0
                   ) AS s
"""

# The value that a type has refused is known by its being refused alone too.
FIND_FIELD: Final = """
            IF code LIKE '22%' AND field = '' THEN
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
                            PERFORM CAST(
                                pg_catalog.concat(
                                    '(',
                                    pg_catalog.repeat(',', number - 1),
                                    '"',
                                    quoted,
                                    '"',
                                    pg_catalog.repeat(',', pg_catalog.cardinality(names) - number),
                                    ')'
                                ) AS {typed}
                            );
                        EXCEPTION WHEN OTHERS THEN
                            IF SQLSTATE = code THEN
                                field := names[number];
                                EXIT;
                            END IF;
                        END;
                    END LOOP;
                END;
            END IF;
"""

TAKE_OUTCOME: Final = """
    SELECT pg_catalog.current_setting('penstock.outcome');
    SELECT pg_catalog.set_config('penstock.outcome', '', true);
    TRUNCATE {stage}
"""
