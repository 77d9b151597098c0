-- aws_commons--1.0.sql: the types and helpers of RDS's extension, with the names of its reference
-- docs.aws.amazon.com/AmazonRDS/latest/UserGuide/USER_PostgreSQL.S3Import.Reference.html

CREATE TYPE aws_commons._s3_uri_1 AS (
    bucket text,
    file_path text,
    region text
);

CREATE TYPE aws_commons._aws_credentials_1 AS (
    access_key text,
    secret_key text,
    session_token text
);

CREATE FUNCTION aws_commons.create_s3_uri(bucket text, file_path text, region text)
RETURNS aws_commons._s3_uri_1
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$ SELECT ROW($1, $2, $3)::aws_commons._s3_uri_1 $$;

CREATE FUNCTION aws_commons.create_aws_credentials(access_key text, secret_key text, session_token text)
RETURNS aws_commons._aws_credentials_1
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$ SELECT ROW($1, $2, $3)::aws_commons._aws_credentials_1 $$;
