"""Objects that the server imports from S3, and the choice of that route."""
