"""The functions of Amazon's extension aws_s3 for servers of the lab, and the program that reads S3 for them."""
