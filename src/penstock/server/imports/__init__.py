"""Imports from S3 by the server itself, with the extension aws_s3 of Amazon RDS and Aurora."""
