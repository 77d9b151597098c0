"""Creates tokens for IAM database authentication. A token is a password that is valid for 15 minutes.

A token is signed on this machine and sent only to the server. AWS is called only if the credentials must be obtained. A
token expires with its credentials if they expire earlier.

Source: docs.aws.amazon.com/AmazonRDS/latest/UserGuide/UsingWithRDS.IAMDBAuth.Connecting.html
"""

from __future__ import annotations

import threading
from typing import Any

from botocore.exceptions import NoCredentialsError

from penstock.core.aws.calls import explain
from penstock.core.aws.credentials import AwsCredentials, credential_failures
from penstock.core.connect.endpoints import region_of
from penstock.core.errors import ServerError, UsageError


class RdsTokens:
    """Creates tokens for IAM database authentication, with the machine's AWS credentials. Threads may share it."""

    def __init__(self) -> None:
        self._credentials = AwsCredentials()
        self._lock = threading.Lock()
        self._clients: dict[str, Any] = {}

    def __call__(self, *, host: str, port: int, user: str) -> str:
        """Return a new token for an endpoint and a user.

        Raises ServerError if there are no credentials, UsageError if the region is not known.
        """
        try:
            with self._lock:
                client = self._client(host)
                token: str = client.generate_db_auth_token(DBHostname=host, Port=port, DBUsername=user)
        except NoCredentialsError as exc:
            raise ServerError(
                "no AWS credentials to create a token with",
                detail="Searched as the AWS command line does: environment, profiles, SSO, the machine's role.",
                hint="Set AWS_PROFILE or run aws sso login; aws sts get-caller-identity shows if it worked.",
            ) from exc
        except credential_failures() as exc:
            raise ServerError(
                "could not create a token for IAM authentication",
                detail=explain(exc),
                hint="Check AWS_PROFILE and the AWS configuration; if it uses SSO, run: aws sso login.",
            ) from exc
        return token

    def _client(self, host: str) -> Any:
        """Return the client of the endpoint's region, which is the host name's region or the configured one."""
        region = region_of(host) or self._credentials.read_region()
        if not region:
            raise UsageError(
                f"the AWS region of {host} is not known",
                detail="Its name does not have one, and none is configured.",
                hint="Set AWS_REGION.",
            )
        if region not in self._clients:
            self._clients[region] = self._credentials.open_session().create_client("rds", region_name=region)
        return self._clients[region]
