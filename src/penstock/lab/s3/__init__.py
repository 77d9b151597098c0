"""Lets a lab's servers import from S3, with PostgreSQL extensions that have the functions of RDS's aws_s3.

extension/ has their SQL. call.py is the protocol between the functions and `penstock cat`. python.py finds the Python
that runs `penstock cat`. topology/s3.py installs all this in a lab, and starts moto's S3 beside it.
"""
