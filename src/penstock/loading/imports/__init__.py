"""The server's route: the server imports whole objects from S3, one in each transaction."""
