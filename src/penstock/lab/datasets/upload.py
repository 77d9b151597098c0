"""Uploads gzip files of a data set to S3, with the Content-Encoding by which RDS decompresses them."""

from __future__ import annotations

from pathlib import Path

import obstore

from penstock.aws.credentials import AwsCredentials
from penstock.errors import LabError, UsageError
from penstock.files.remote.stores import STORE_ERRORS, CredentialSource, Stores, describe_failure


class S3Folder:
    """A prefix in a bucket, named by a URL such as s3://bucket/prefix. Raises UsageError if the URL names no bucket.

    `access` provides region, endpoint and credentials; None takes those of the environment.
    """

    def __init__(self, url: str, access: CredentialSource | None = None) -> None:
        self._url = url.rstrip("/")
        if not self._url.removeprefix("s3://"):
            raise UsageError(f'"{url}" names no bucket', hint="Write s3://bucket/prefix.")
        self._stores = Stores(access or AwsCredentials())

    def upload(self, path: Path) -> str:
        """Upload a gzip file under its own name, and return its URL. Raises LabError, SourceError."""
        url = f"{self._url}/{path.name}"
        store, key = self._stores.find(url)
        try:
            # obstore sends large files in parts. A failed upload leaves no object.
            obstore.put(store, key, path, attributes={"Content-Encoding": "gzip"})
        except (*STORE_ERRORS, ValueError) as exc:
            # The cause is not attached, because its text has the URL, which may be signed.
            raise LabError(
                f'could not write "{url}"',
                detail=describe_failure(exc).words,
                hint="Check that the bucket exists, AWS_ENDPOINT_URL, AWS_REGION and the credentials.",
            ) from None
        return url
