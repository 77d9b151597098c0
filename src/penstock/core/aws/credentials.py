"""Finds S3 credentials, region and endpoint in the same way as the AWS command line.

obstore knows only environment variables and instance metadata. botocore also knows profiles, SSO, assumed roles,
credential programs and containers, and renews credentials that expire. botocore is imported when S3 is first used.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, TypeVar

from penstock.core.errors import CredentialsError, PenstockError

if TYPE_CHECKING:
    from botocore.credentials import Credentials
    from botocore.session import Session
    from obstore.store import S3Credential

_Error = TypeVar("_Error", bound=PenstockError)

# How long the credentials are valid, as obstore is told. obstore asks for new credentials 5 minutes before this time
# ends, which is after 9 minutes. botocore's credentials are valid for at least 10 minutes: when botocore is asked, it
# tries to renew credentials that expire in less than 15 minutes, and it must renew credentials that expire in less than
# 10.
_CREDENTIAL_LIFE = timedelta(minutes=14)


class AwsCredentials:
    """The machine's AWS configuration. It is read once, and threads may share it.

    `profile` is the name of a configured profile. If it is None, AWS_PROFILE or the default profile is used.
    """

    def __init__(self, *, profile: str | None = None) -> None:
        self._profile = profile
        self._lock = threading.Lock()
        self._session: Session | None = None

    def s3_config(self) -> dict[str, str]:
        """Return the configured region and endpoint URL of S3, under the keys `region` and `endpoint`.

        A key that is not configured is absent. Raises CredentialsError if the profile does not exist or the
        configuration is invalid.
        """
        from botocore.configprovider import ConfiguredEndpointProvider  # noqa: PLC0415 (40 ms, only for S3)
        from botocore.exceptions import BotoCoreError  # noqa: PLC0415 (with the line above)

        try:
            session = self.open_session()
            region = self.read_region()
            endpoint = None
            if not session.get_config_variable("ignore_configured_endpoint_urls"):
                endpoint = ConfiguredEndpointProvider(
                    full_config=session.full_config,
                    scoped_config=session.get_scoped_config(),
                    client_name="s3",
                ).provide()
        except BotoCoreError as exc:
            raise unusable(exc, CredentialsError) from exc
        found = {"region": region, "endpoint": endpoint}
        return {name: str(value) for name, value in found.items() if value}

    def read_region(self) -> str | None:
        """Return the name of the configured region, such as eu-west-1. Raises botocore's BotoCoreError.

        AWS_REGION comes first, as for AWS's command line and other SDKs, although botocore does not read it.
        """
        region: str | None = self.open_session().get_config_variable("region")
        return os.environ.get("AWS_REGION") or region

    def s3_credentials(self) -> Callable[[], S3Credential] | None:
        """Return a function that gives the current credentials, or None if none are configured (public buckets).

        Raises CredentialsError if credentials are configured but cannot be obtained, for example because an SSO session
        has expired.
        """
        try:
            credentials = self.open_session().get_credentials()
            if credentials is None:
                return None
            credentials.get_frozen_credentials()
        except credential_failures() as exc:
            raise unusable(exc, CredentialsError) from exc
        return lambda: _current(credentials)

    def open_session(self) -> Session:
        """Return botocore's session. Using it raises botocore's ProfileNotFound if the profile does not exist."""
        import botocore.session  # noqa: PLC0415 (78 ms, only for S3)

        with self._lock:
            if self._session is None:
                self._session = botocore.session.Session(profile=self._profile)
            return self._session


def credential_failures() -> tuple[type[Exception], ...]:
    """Return the errors that obtaining credentials may raise.

    They are botocore's own errors, AWS's error if a role may not be assumed, and the errors of a credential program
    that does not exist or whose output is not valid.
    """
    from botocore.exceptions import BotoCoreError, ClientError  # noqa: PLC0415 (40 ms, only for S3)

    return BotoCoreError, ClientError, OSError, ValueError


def _current(credentials: Credentials) -> S3Credential:
    frozen = credentials.get_frozen_credentials()
    return {
        "access_key_id": frozen.access_key or "",
        "secret_access_key": frozen.secret_key or "",
        "token": frozen.token,
        "expires_at": datetime.now(UTC) + _CREDENTIAL_LIFE,
    }


def unusable(exc: Exception, kind: type[_Error]) -> _Error:
    """Return the error, of the class `kind`, that says why there are no credentials."""
    from penstock.core.aws.calls import explain  # noqa: PLC0415 (51 ms, botocore)

    return kind(
        "could not obtain AWS credentials",
        detail=explain(exc),
        hint="Check AWS_PROFILE and the AWS configuration; if it uses SSO, run: aws sso login.",
    )
