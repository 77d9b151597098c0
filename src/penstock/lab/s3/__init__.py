"""Amazon S3 beside a lab: moto's server, and PostgreSQL extensions with the functions of RDS's aws_s3.

standin.py starts both, call.py is what the functions and `penstock cat` tell each other. extension/ has the SQL.
"""
