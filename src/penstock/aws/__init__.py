"""Amazon Web Services: the only package that imports boto3 and botocore. Each is imported when it is first needed."""
