-- aws_s3--1.0.sql: the import functions of RDS's extension, for penstock's labs
-- All functions are SECURITY INVOKER. They read by COPY FROM PROGRAM, so they need a superuser or a member of
-- pg_execute_server_program. The names of arguments are those of RDS's reference.
-- No argument of a caller is in a command line. The call is passed in a file (see table_import_from_s3).

-- The answers of `penstock cat`. A row exists only within one call, so no other session ever sees it.
CREATE UNLOGGED TABLE aws_s3._answers (
    call text NOT NULL,
    answer text NOT NULL
);
GRANT SELECT, INSERT, DELETE ON aws_s3._answers TO PUBLIC;


-- Returns the path of the lab's script, quoted for the shell. penstock lab up writes the path here, so that no setting
-- can name another script.
CREATE FUNCTION aws_s3._script()
RETURNS text
LANGUAGE sql IMMUTABLE
SET search_path = pg_catalog, pg_temp
AS $$ SELECT convert_from(decode('@SCRIPT_IN_HEX@', 'hex'), 'UTF8') $$;


-- Raises an error if a required argument is NULL, or is empty although it may not be empty.
CREATE FUNCTION aws_s3._require(name text, value text, may_be_empty boolean)
RETURNS void
LANGUAGE plpgsql IMMUTABLE
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF value IS NULL OR (value = '' AND NOT may_be_empty) THEN
        RAISE EXCEPTION USING
            ERRCODE = 'null_value_not_allowed',
            MESSAGE = format('%s must not be %s', name, CASE WHEN may_be_empty THEN 'NULL' ELSE 'NULL or empty' END);
    END IF;
END
$$;


-- Returns a column list such as 'a, "B c"' as ' ("a", "B c")', or an empty string for an empty list.
CREATE FUNCTION aws_s3._compose_columns(column_list text)
RETURNS text
LANGUAGE plpgsql IMMUTABLE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    name CONSTANT text := '(?:"(?:[^"]|"")+"|[^\s",()]+)';
    composed text;
BEGIN
    IF column_list ~ '^\s*$' THEN
        RETURN '';
    END IF;
    IF column_list !~ format('^\s*%s\s*(?:,\s*%s\s*)*$', name, name) THEN
        RAISE EXCEPTION USING
            ERRCODE = 'syntax_error',
            MESSAGE = format('column_list is not a list of column names: %s', column_list);
    END IF;
    SELECT format(' (%s)', string_agg(format('%I', aws_s3._read_column(written[1])), ', ' ORDER BY place))
    INTO composed
    FROM regexp_matches(column_list, name, 'g') WITH ORDINALITY AS names (written, place);
    RETURN composed;
END
$$;


-- Returns the name of a column that is written as in SQL. A name without quotes is folded to lower case.
CREATE FUNCTION aws_s3._read_column(written text)
RETURNS text
LANGUAGE plpgsql IMMUTABLE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    parts text[] := parse_ident(written);
BEGIN
    IF cardinality(parts) <> 1 THEN
        RAISE EXCEPTION USING
            ERRCODE = 'syntax_error',
            MESSAGE = format('column_list has a name with a dot: %s', written);
    END IF;
    RETURN parts[1];
END
$$;


-- Returns a clause with COPY's options, or an empty string. A caller cannot add other clauses by the text of the
-- options: the text is cut into tokens, which are written again. A word becomes a quoted identifier, which is never a
-- keyword, so the word cannot begin another clause. COPY's old syntax has no parentheses. In it, the words of this
-- syntax stay keywords.
CREATE FUNCTION aws_s3._compose_options(options text)
RETURNS text
LANGUAGE plpgsql IMMUTABLE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    old_words CONSTANT text[] := ARRAY['binary', 'freeze', 'delimiter', 'null', 'csv', 'header', 'quote', 'escape',
                                       'force', 'encoding', 'as', 'not'];
    remaining text := ltrim(options, E' \t\n\r\f\v');
    token text;
    composed text := '';
    depth integer := 0;
    has_ended boolean := false;
    is_old boolean;
BEGIN
    IF remaining = '' THEN
        RETURN '';
    END IF;
    is_old := lower(substring(remaining FROM '^[A-Za-z_]+')) = ANY (old_words) AND remaining !~* '\yformat\y';
    IF NOT is_old AND NOT starts_with(remaining, '(') THEN
        remaining := format('(%s)', remaining);
    END IF;
    WHILE remaining <> '' LOOP
        token := substring(remaining FROM
            $re$^(?:[Ee]'(?:[^'\\]|''|\\.)*'|'(?:[^']|'')*'|"(?:[^"]|"")+"|[A-Za-z_][A-Za-z0-9_]*(?![A-Za-z0-9_'"&])|[+-]?[0-9]+|[(),*])$re$
        );
        IF token IS NULL OR has_ended OR (is_old AND token IN ('(', ')')) THEN
            RAISE EXCEPTION USING
                ERRCODE = 'syntax_error',
                MESSAGE = format('options are not options of COPY, at or near: %s', left(remaining, 30));
        END IF;
        remaining := ltrim(substr(remaining, length(token) + 1), E' \t\n\r\f\v');
        depth := depth + CASE token WHEN '(' THEN 1 WHEN ')' THEN -1 ELSE 0 END;
        has_ended := NOT is_old AND depth = 0;
        composed := format('%s %s', composed, CASE
            -- Backslashes in 'x' are data. quote_literal ensures this with any standard_conforming_strings.
            WHEN starts_with(token, '''') THEN
                quote_literal(replace(substr(token, 2, length(token) - 2), '''''', ''''))
            WHEN token ~ '^[Ee]''' THEN token
            WHEN token !~ '^[A-Za-z_]' THEN token
            WHEN is_old AND lower(token) = ANY (old_words) THEN upper(token)
            ELSE format('"%s"', lower(token))
        END);
    END LOOP;
    IF depth <> 0 THEN
        RAISE EXCEPTION USING
            ERRCODE = 'syntax_error',
            MESSAGE = 'options have a parenthesis that is not closed';
    END IF;
    RETURN format(' WITH%s', composed);
END
$$;


-- Returns the COPY command of a call. Names and options are parsed and written again, so that they contain nothing
-- else.
CREATE FUNCTION aws_s3._compose_copy(table_name text, column_list text, options text, call text)
RETURNS text
LANGUAGE plpgsql IMMUTABLE
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    PERFORM aws_s3._require('table_name', table_name, may_be_empty => false);
    PERFORM aws_s3._require('column_list', column_list, may_be_empty => true);
    PERFORM aws_s3._require('options', options, may_be_empty => true);
    RETURN format(
        'COPY %s%s FROM PROGRAM %L%s',
        (SELECT string_agg(format('%I', part), '.' ORDER BY place)
         FROM unnest(parse_ident(table_name)) WITH ORDINALITY AS parts (part, place)),
        aws_s3._compose_columns(column_list),
        format('exec %s read %s', aws_s3._script(), call),
        aws_s3._compose_options(options)
    );
END
$$;


-- Returns the request that `penstock cat --call` reads, as one line of hexadecimal digits.
CREATE FUNCTION aws_s3._describe_call(
    bucket text, file_path text, region text, access_key text, secret_key text, session_token text
)
RETURNS text
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    region := coalesce(nullif(region, ''), nullif(current_setting('aws_s3.region', true), ''));
    PERFORM aws_s3._require('bucket', bucket, may_be_empty => false);
    PERFORM aws_s3._require('file_path', file_path, may_be_empty => false);
    PERFORM aws_s3._require('region', region, may_be_empty => false);
    IF coalesce(access_key, '') = '' AND coalesce(secret_key, '') <> ''
       OR coalesce(access_key, '') <> '' AND coalesce(secret_key, '') = '' THEN
        RAISE EXCEPTION USING
            ERRCODE = 'null_value_not_allowed',
            MESSAGE = 'credentials need both an access key and a secret key';
    END IF;
    RETURN encode(convert_to(json_build_object(
        'bucket', bucket,
        'file_path', file_path,
        'region', region,
        'endpoint_url', nullif(current_setting('aws_s3.endpoint_url', true), ''),
        'access_key', access_key,
        'secret_key', secret_key,
        'session_token', session_token
    )::text, 'UTF8'), 'hex');
END
$$;


-- Returns the answer to a call, NULL if there is none, and removes the call's files.
CREATE FUNCTION aws_s3._take_answer(call text)
RETURNS json
LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    line text;
BEGIN
    EXECUTE format('COPY aws_s3._answers FROM PROGRAM %L', format('exec %s answer %s', aws_s3._script(), call));
    DELETE FROM aws_s3._answers WHERE _answers.call = _take_answer.call RETURNING answer INTO line;
    RETURN convert_from(decode(line, 'hex'), 'UTF8');
END
$$;


-- Imports one object. The function keeps the caller's search path, because this applies to the table's name. Therefore
-- all other names are qualified.
CREATE FUNCTION aws_s3.table_import_from_s3(
    table_name text, column_list text, options text,
    bucket text, file_path text, region text,
    access_key text DEFAULT NULL, secret_key text DEFAULT NULL, session_token text DEFAULT NULL
)
RETURNS text
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    -- The name has only digits, letters and hyphens. It begins with the backend's process id, by which the script finds
    -- and removes files of ended backends.
    call CONSTANT text := pg_catalog.format('%s-%s', pg_catalog.pg_backend_pid(), pg_catalog.gen_random_uuid());
    statement CONSTANT text := aws_s3._compose_copy(table_name, column_list, options, call);
    row_count bigint;
    answer json;
BEGIN
    -- COPY TO PROGRAM is allowed in a read-only transaction. It would write the call's file, and nothing could remove
    -- this file.
    IF pg_catalog.current_setting('transaction_read_only')::boolean THEN
        RAISE EXCEPTION USING
            ERRCODE = 'read_only_sql_transaction',
            MESSAGE = 'cannot import in a read-only transaction';
    END IF;
    -- COPY takes no parameters, and a statement's text may be logged. So the call travels in a setting of the transaction.
    PERFORM pg_catalog.set_config(
        'aws_s3._call',
        aws_s3._describe_call(bucket, file_path, region, access_key, secret_key, session_token),
        true
    );
    EXECUTE pg_catalog.format(
        'COPY (SELECT pg_catalog.current_setting(''aws_s3._call'')) TO PROGRAM %L',
        pg_catalog.format('exec %s put %s', aws_s3._script(), call)
    );
    PERFORM pg_catalog.set_config('aws_s3._call', '', true);
    BEGIN
        EXECUTE statement;
        GET DIAGNOSTICS row_count = ROW_COUNT;
    EXCEPTION WHEN query_canceled OR OTHERS THEN
        -- If COPY failed before it started the program, the call's file still exists. _take_answer removes it.
        answer := aws_s3._take_answer(call);
        IF answer IS NOT NULL AND pg_catalog.starts_with(SQLSTATE, '38') THEN
            RAISE EXCEPTION USING
                ERRCODE = 'external_routine_exception',
                MESSAGE = pg_catalog.json_extract_path_text(answer, 'message'),
                DETAIL = pg_catalog.json_extract_path_text(answer, 'detail'),
                HINT = pg_catalog.json_extract_path_text(answer, 'hint');
        END IF;
        RAISE;
    END;
    answer := aws_s3._take_answer(call);
    RETURN pg_catalog.format(
        '%s rows imported into relation "%s" from file %s of %s bytes',
        -- There is no answer if COPY ended at an end-of-data marker, before the object's end.
        row_count, table_name, file_path, coalesce(pg_catalog.json_extract_path_text(answer, 'size_bytes'), '0')
    );
END
$$;


CREATE FUNCTION aws_s3.table_import_from_s3(
    table_name text, column_list text, options text, s3_info aws_commons._s3_uri_1
)
RETURNS text
LANGUAGE plpgsql VOLATILE
AS $$
BEGIN
    RETURN aws_s3.table_import_from_s3(
        table_name, column_list, options, s3_info.bucket, s3_info.file_path, s3_info.region, NULL, NULL, NULL
    );
END
$$;


CREATE FUNCTION aws_s3.table_import_from_s3(
    table_name text, column_list text, options text,
    s3_info aws_commons._s3_uri_1, credentials aws_commons._aws_credentials_1
)
RETURNS text
LANGUAGE plpgsql VOLATILE
AS $$
BEGIN
    PERFORM aws_s3._require('access_key of credentials', credentials.access_key, may_be_empty => false);
    RETURN aws_s3.table_import_from_s3(
        table_name, column_list, options, s3_info.bucket, s3_info.file_path, s3_info.region,
        credentials.access_key, credentials.secret_key, credentials.session_token
    );
END
$$;


CREATE FUNCTION aws_s3._refuse_export()
RETURNS void
LANGUAGE plpgsql
AS $$
BEGIN
    RAISE EXCEPTION USING
        ERRCODE = 'feature_not_supported',
        MESSAGE = 'export to S3 is not available in a lab',
        DETAIL = 'The extension aws_s3 of penstock lab only imports.',
        HINT = 'Use COPY (SELECT ...) TO STDOUT.';
END
$$;


CREATE FUNCTION aws_s3.query_export_to_s3(
    query text, s3_info aws_commons._s3_uri_1, options text DEFAULT NULL, kms_key text DEFAULT NULL,
    OUT rows_uploaded bigint, OUT files_uploaded bigint, OUT bytes_uploaded bigint
)
LANGUAGE plpgsql
AS $$
BEGIN
    PERFORM aws_s3._refuse_export();
END
$$;


CREATE FUNCTION aws_s3.query_export_to_s3(
    query text, bucket text, file_path text, region text DEFAULT NULL, options text DEFAULT NULL,
    kms_key text DEFAULT NULL,
    OUT rows_uploaded bigint, OUT files_uploaded bigint, OUT bytes_uploaded bigint
)
LANGUAGE plpgsql
AS $$
BEGIN
    PERFORM aws_s3._refuse_export();
END
$$;
