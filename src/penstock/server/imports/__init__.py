"""Imports from S3 that the server makes itself, by the extension aws_s3 of Amazon RDS and Aurora."""
