"""A server prepared for imports from S3, and what undoes that."""
