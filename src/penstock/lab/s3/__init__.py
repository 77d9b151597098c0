"""Functions of Amazon's aws_s3 for servers of the lab, and what reads S3 for them."""
