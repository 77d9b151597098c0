"""Has the server import objects from S3, and chooses when it does (the server's route)."""
