"""Amazon Web Services: the only room that knows boto3 and botocore, each imported when first needed."""
