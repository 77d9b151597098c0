"""Amazon Web Services. Only this package imports boto3 and botocore, and it imports each when it is first needed."""
