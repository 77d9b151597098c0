-- A stand-in for extension aws_s3 of Amazon RDS: reads an object by a program. For tests only; needs a superuser.
-- psql -v script=PATH -v endpoint=URL
CREATE SCHEMA aws_s3;

CREATE FUNCTION aws_s3.table_import_from_s3(
    table_name text, column_list text, options text, bucket text, file_path text, region text
) RETURNS text LANGUAGE plpgsql AS $body$
DECLARE
    stored bigint;
    program text := concat_ws(
        ' ', '/usr/bin/python3', current_setting('aws_s3.script'), current_setting('aws_s3.endpoint_url'),
        encode(convert_to(bucket, 'UTF8'), 'hex'), encode(convert_to(file_path, 'UTF8'), 'hex')
    );
BEGIN
    EXECUTE format(
        'COPY %s %s FROM PROGRAM %L %s', table_name, CASE column_list WHEN '' THEN '' ELSE '(' || column_list || ')' END,
        program, options
    );
    GET DIAGNOSTICS stored = ROW_COUNT;
    RETURN format('%s rows imported into relation "%s" from file %s of %s bytes', stored, table_name, file_path, 0);
END
$body$;
