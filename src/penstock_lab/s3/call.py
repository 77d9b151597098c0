"""Reads the request of aws_s3.table_import_from_s3 to `penstock cat`, and writes the answer.

The function writes the call to a file that only the server's account can read. The call may have credentials, and these
must not appear in a command line. `take_call` removes this file before anything is read from S3. The answer is written
to a file beside it, which the function removes. Both files have one line: JSON as hexadecimal digits, which mean the
same to COPY and to this module.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.core.errors import UsageError
from penstock.core.slotted import slotted

if TYPE_CHECKING:
    from obstore.store import S3Credential

# The credentials that are used for a call without credentials. They stand for the role of an RDS instance, and moto
# accepts any.
ROLE_VARIABLES: Mapping[str, str] = {"AWS_ACCESS_KEY_ID": "penstock-lab", "AWS_SECRET_ACCESS_KEY": "penstock-lab"}

# How long obstore is told that credentials are valid. obstore needs an expiry, but the expiry of a call's credentials
# is not known here. No import takes longer than this.
_CREDENTIAL_LIFE = timedelta(days=7)


@slotted
class S3Call:
    """A call of aws_s3's import function in a lab: the object to import, and the access to it.

    It is a CredentialSource (loading/files/stores.py).
    """

    bucket: str
    key: str
    region: str
    endpoint_url: str | None
    access_key: str
    secret_key: str
    session_token: str | None

    @property
    def uri(self) -> str:
        """Return the object's URL, such as s3://bucket/key."""
        return f"s3://{self.bucket}/{self.key}"

    def s3_config(self) -> dict[str, str]:
        """Return the options "region" and "endpoint" of the object store's client. AWS's own endpoint is left out."""
        return {"region": self.region} | ({"endpoint": self.endpoint_url} if self.endpoint_url else {})

    def s3_credentials(self) -> Callable[[], S3Credential]:
        """Return a function that returns the credentials."""
        return lambda: {
            "access_key_id": self.access_key,
            "secret_access_key": self.secret_key,
            "token": self.session_token,
            "expires_at": datetime.now(UTC) + _CREDENTIAL_LIFE,
        }


def take_call(path: Path) -> S3Call:
    """Return the call that a file describes, and remove the file.

    Raises UsageError if the file does not exist or is not a call. A file that is not a call is not removed, because it
    is somebody's own.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        with os.fdopen(descriptor, encoding="ascii") as file:
            fields = json.loads(bytes.fromhex(file.read()))
        call = S3Call(
            bucket=fields["bucket"],
            key=fields["file_path"],
            region=fields["region"],
            endpoint_url=fields["endpoint_url"],
            access_key=fields["access_key"] or ROLE_VARIABLES["AWS_ACCESS_KEY_ID"],
            secret_key=fields["secret_key"] or ROLE_VARIABLES["AWS_SECRET_ACCESS_KEY"],
            session_token=fields["session_token"] or None,
        )
        path.unlink()
    except OSError as exc:
        raise UsageError(f'could not read the call "{path}": {exc.strerror}', hint=_HINT) from exc
    except (ValueError, KeyError, TypeError):
        # The cause is not attached, because its text quotes the file, which may have credentials.
        raise UsageError(f'"{path}" is not a call', hint=_HINT) from None
    return call


_HINT = "Files for --call are written by the functions of aws_s3 in a lab; name a URL instead."


def write_answer(path: Path, answer: Mapping[str, object]) -> None:
    """Write the answer to a call into a file beside the call's own. Only its owner can read it. Raises OSError."""
    file = path.with_name(f"{path.name}.answer")
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "w", encoding="ascii") as opened:
        opened.write(f"{path.name}\t{json.dumps(answer).encode().hex()}\n")
