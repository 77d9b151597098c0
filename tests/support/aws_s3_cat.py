"""Writes an S3 object to standard output, decompressed by its Content-Encoding; run by aws_s3.sql on a server."""

import gzip
import sys
import urllib.parse
import urllib.request

endpoint, bucket, key = sys.argv[1], *(bytes.fromhex(word).decode() for word in sys.argv[2:])
# moto takes any signature for a right one.
signed = "AWS4-HMAC-SHA256 Credential=AKIA/20260101/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=0"
url = f"{endpoint}/{bucket}/{urllib.parse.quote(key)}"
request = urllib.request.Request(url, headers={"Authorization": signed})  # noqa: S310 (the tests' own server)
with urllib.request.urlopen(request, timeout=30) as answer:  # noqa: S310
    stored = gzip.GzipFile(fileobj=answer) if answer.headers.get("Content-Encoding") == "gzip" else answer
    while piece := stored.read(65536):
        sys.stdout.buffer.write(piece)
sys.stdout.buffer.flush()
