"""Functions for servers of Amazon RDS: AWS's description, access, imports from S3, and adapting a load's plan."""
