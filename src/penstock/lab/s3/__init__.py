"""What lets a lab's servers import from S3: PostgreSQL extensions with the functions of RDS's aws_s3.

extension/ has their SQL. call.py is what the functions and `penstock cat` tell each other, python.py finds the Python
that runs it. topology/s3.py puts them into a lab, and starts moto's S3 beside it.
"""
