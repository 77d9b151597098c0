"""Prepares a server of Amazon RDS for importing from S3 (`penstock rds prepare-s3-import`), and undoes that."""
