"""The statements by which the server sorts records out, with the names of tables and columns left open (sorting.py).

What reads and stores values is run with the user's search_path, and names penstock's own operators with their schema.
"""

from __future__ import annotations

from typing import Final

# {to_users} and {to_own} are search_path.PATHS: an error between them undoes the path with the savepoint.

MAKE: Final = """
    SAVEPOINT penstock_sorting;
    {drop}
    CREATE TABLE {stage} ({columns}) ON COMMIT DROP;
    {typed}
    CREATE SEQUENCE {counter} CACHE {cache} OWNED BY {stage}.{first};
    RELEASE SAVEPOINT penstock_sorting
"""

DISCARD: Final = "ROLLBACK TO SAVEPOINT penstock_sorting; RELEASE SAVEPOINT penstock_sorting"

# What a record is put aside with; what is no record's fault ends it all.
NOTE_ERROR: Final = """
            GET STACKED DIAGNOSTICS
                code = RETURNED_SQLSTATE,
                words = MESSAGE_TEXT,
                more = PG_EXCEPTION_DETAIL,
                field = COLUMN_NAME;
            IF code !~ {own_codes} OR code = ANY ({other_codes}) THEN
                RAISE;
            END IF;
"""

# Names of a column win over those of a variable, and the block's name tells the latter apart.
SORT: Final = """
#variable_conflict use_column
<<sorting>>
DECLARE
    places CONSTANT tid[] := ARRAY(SELECT s.ctid FROM {stage} AS s {portion});
    total CONSTANT int4 := pg_catalog.cardinality(places);
    counter CONSTANT regclass := {counter};
    first int4 := 1;
    last int4;
    lower tid;
    upper tid;
    size int4 := {size};
    seen CONSTANT int8 := {seen};
    parked int4 := 1;
    barriers int4[] := '{{}}';
    depth int4 := 0;
    suspects tid[] := '{{}}';
    judged int4 := 0;
    passed int4 := 0;
    ahead int4;
    left_out tid[];
    looks int4 := 0;
    taken int4 := 0;
    counted_from int4 := 1;
    counted int8;
    begun int8;
    is_stored boolean;
    stored int8 := 0;
    best int4;
    affected int8;
    bad int4;
    weight int4 := {weight};
    code text;
    words text;
    more text;
    field text;
    outcome json[] := '{{}}';
    {declarations}
BEGIN
    counted := pg_catalog.nextval(counter);
    {find_suspects}
    WHILE first <= total LOOP
        last := LEAST(first + size - 1, total);
        IF depth > 0 THEN
            last := LEAST(last, barriers[depth] - 1);
        END IF;
        lower := places[first];
        upper := places[last];
        WHILE suspects[passed + 1] < lower LOOP
            passed := passed + 1;
        END LOOP;
        ahead := passed;
        WHILE suspects[ahead + 1] <= upper LOOP
            ahead := ahead + 1;
        END LOOP;
        left_out := suspects[passed + 1 : ahead];
        BEGIN
            {store}
            is_stored := true;
        EXCEPTION WHEN OTHERS OR ASSERT_FAILURE THEN
            {note_error}
            is_stored := false;
        END;
        begun := pg_catalog.currval(counter) - counted;
        counted := counted + begun;
        IF NOT is_stored AND code = '23505' THEN
            taken := taken + 1;
        END IF;
        IF is_stored THEN
            stored := stored + affected;
            {count}
            first := last + 1;
            best := LEAST({most}, pg_catalog.sqrt({factor}::float8 * (seen + first) / weight));
            size := LEAST(2 * size, {most}, GREATEST(1, best));
            parked := 1;
        ELSIF {parks} AND code = '23503' AND begun = last - first + 1 AND begun <= parked THEN
            weight := weight + {whole_weight};
            FOR parked_one IN first .. last LOOP
                -- Those that were left out have not been tried yet.
                CONTINUE WHEN places[parked_one] = ANY (left_out);
                bad := parked_one;
                {note}
            END LOOP;
            first := last + 1;
            parked := LEAST(2 * parked, {most_parked});
            size := parked;
        {find_taken}
        ELSIF begun > 1 AND first + begun - 1 < last AND code IN ('23505', '23P01') THEN
            -- Perhaps by a row of this very group that does not stay: the rows before it come first.
            size := begun - 1;
            weight := weight + 1;
        ELSIF first = last OR (begun > 0 AND first + begun - 1 < last) THEN
            bad := first + GREATEST(begun, 1) - 1;
            weight := weight + CASE WHEN first = last THEN {whole_weight} ELSE 1 END;
            {find_field}
            {note}
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
    {judge_suspects}
    PERFORM pg_catalog.set_config('penstock.outcome', {outcome}::text, true);
END sorting
"""

# What stores rows by INSERT alone, and how its refused rows are noted and told.
STORE: Final = """
            {to_users};
            INSERT INTO {target} ({names}) OVERRIDING SYSTEM VALUE
            {select};
            GET DIAGNOSTICS affected = ROW_COUNT;
            {to_own};
"""
NOTE: Final = "outcome := outcome || pg_catalog.json_build_array(bad, code, words, more, field);"
OUTCOME: Final = "pg_catalog.json_build_object('stored', stored, 'refused', pg_catalog.to_json(outcome))"

# Those that were left out of their groups, one by one.
JUDGE_SUSPECTS: Final = """
    bad := 0;
    FOR suspect IN judged + 1 .. pg_catalog.cardinality(suspects) LOOP
        lower := suspects[suspect];
        BEGIN
            {store_one}
            stored := stored + affected;
        EXCEPTION WHEN OTHERS OR ASSERT_FAILURE THEN
            {note_error}
            -- Its place, which is behind that of the last one.
            first := bad + 1;
            last := total;
            WHILE first < last LOOP
                bad := (first + last) / 2;
                IF places[bad] < lower THEN
                    first := bad + 1;
                ELSE
                    last := bad;
                END IF;
            END LOOP;
            bad := first;
            {find_field}
            {note}
        END;
    END LOOP;
"""

# Rows that are as good as certain to be refused would have their group stored again: they are left for last. What
# cannot be looked for (an expression that fails, no right to read the table) is found as it is refused.
FIND_UNCHECKED: Final = """
    BEGIN
        suspects := ARRAY(
            SELECT s.ctid
              FROM {stage} AS s
             WHERE {is_unchecked}
        );
    EXCEPTION WHEN OTHERS THEN
        suspects := '{{}}';
    END;
"""

# Rows with values that their types refuse are found by reading on behind each: nothing has to be done again for them.
FIND_UNREAD: Final = """
    WHILE first <= total LOOP
        lower := places[first];
        BEGIN
            {to_users};
            PERFORM pg_catalog.count(penstock_row) FROM ({select_rest}) AS penstock_row;
            {to_own};
            first := total + 1;
        EXCEPTION WHEN OTHERS THEN
            {note_error}
            EXIT WHEN pg_catalog.currval(counter) = counted;
            first := first + (pg_catalog.currval(counter) - counted);
            bad := first - 1;
            {find_field}
            outcome := outcome || pg_catalog.json_build_array(bad, code, words, more, field);
            suspects := suspects || places[bad];
        END;
        counted := pg_catalog.currval(counter);
    END LOOP;
    judged := pg_catalog.cardinality(suspects);
    counted := pg_catalog.currval(counter);
    first := 1;
"""

# Worth it where it is known to find many: first those that have their key from one before them, then the table's.
FIND_TAKEN: Final = """
        ELSIF code = '23505' AND depth = 0 AND (
            looks = 0 AND first - counted_from <= taken * {twins_worth}
            OR looks = 1 AND first - counted_from <= taken * {stored_worth}
        ) THEN
            BEGIN
                IF looks = 0 THEN
                    suspects := ARRAY(SELECT pg_catalog.unnest(suspects) {twins} ORDER BY 1);
                ELSE
                    suspects := ARRAY(SELECT pg_catalog.unnest(suspects) {stored} ORDER BY 1);
                END IF;
                passed := 0;
            EXCEPTION WHEN OTHERS THEN
                looks := 1;
            END;
            looks := looks + 1;
            taken := 0;
            counted_from := first;
            -- What is left should fail less often.
            weight := 1;
"""

TWINS: Final = """
                        UNION
                        SELECT s.ctid
                          FROM (
                                   SELECT {names},
                                          pg_catalog.min(s.ctid) AS penstock_first
                                     FROM {stage} AS s
                                    WHERE s.ctid >= sorting.lower
                                    GROUP BY {names}
                                   HAVING pg_catalog.count(*) > 1
                               ) AS t
                          JOIN {stage} AS s ON {is_same}
                         WHERE s.ctid > t.penstock_first
"""

# A query for each row: a join might read all of the table.
STORED: Final = """
                        UNION
                        SELECT s.ctid
                          FROM {stage} AS s
                         WHERE s.ctid >= sorting.lower
                           AND (
                                   SELECT true
                                     FROM {only} {target} AS t
                                    WHERE {is_same}
                                    LIMIT 1
                               )
"""

# The counter counts those too that are left out.
GROUP: Final = """
s.ctid OPERATOR(pg_catalog.>=) sorting.lower
               AND s.ctid OPERATOR(pg_catalog.<=) sorting.upper
               AND CASE WHEN pg_catalog.nextval(sorting.counter) OPERATOR(pg_catalog.>) 0
                        THEN (
                                 s.ctid OPERATOR(pg_catalog.=) ANY (SELECT pg_catalog.unnest(sorting.left_out))
                             ) IS NOT TRUE
                   END
"""

REST: Final = (
    "s.ctid OPERATOR(pg_catalog.>=) sorting.lower AND pg_catalog.nextval(sorting.counter) OPERATOR(pg_catalog.>) 0"
)

ONE: Final = "s.ctid OPERATOR(pg_catalog.=) sorting.lower"

SELECT: Final = """
            SELECT {values}
              FROM {stage} AS s
             WHERE {rows}
"""

# What a composite type reads in its text form it reads by each column's input function, as COPY does.
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
                    reads CONSTANT boolean[] := {reads};
                    quoted text;
                BEGIN
                    FOR number IN 1 .. pg_catalog.cardinality(names) LOOP
                        CONTINUE WHEN fields[number] IS NULL OR NOT reads[number];
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
                            -- Several may be wrong in the same way: the words tell which one was met.
                            IF SQLSTATE = code AND (field = '' OR SQLERRM = words) THEN
                                field := names[number];
                                EXIT WHEN SQLERRM = words;
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
