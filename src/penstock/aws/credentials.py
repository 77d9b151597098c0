"""S3 credentials, region and endpoint as the AWS command line would find them.

obstore knows environment variables and instance metadata only; botocore also knows profiles, SSO, assumed
roles, processes and containers, and renews what expires. It is imported when S3 is first asked for.
"""

from __future__ import annotations

import os
import threading
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from penstock.errors import SourceError

if TYPE_CHECKING:
    from collections.abc import Callable

    from botocore.credentials import Credentials
    from botocore.session import Session
    from obstore.store import S3Credential

# botocore renews credentials that expire in under 15 minutes whenever it is asked (and must in under 10), so
# that those it gives are good for 10; obstore asks again 5 minutes before the end it is told
_CREDENTIAL_LIFE = timedelta(minutes=14)


class AwsCredentials:
    """The machine's AWS configuration, read once; safe to share between threads.

    `profile` names one of the configuration's profiles; without it AWS_PROFILE or the default one counts.
    """

    def __init__(self, *, profile: str | None = None) -> None:
        self._profile = profile
        self._lock = threading.Lock()
        self._session: Session | None = None

    def s3_config(self) -> dict[str, str]:
        """Return `region` and `endpoint`, each where one is configured.

        Raises SourceError if the profile is missing.
        """
        from botocore.configprovider import ConfiguredEndpointProvider  # noqa: PLC0415 (40 ms, for who reads from S3)
        from botocore.exceptions import BotoCoreError  # noqa: PLC0415 (with the line above)

        try:
            session = self.open_session()
            region = self.find_region()
            endpoint = None
            if not session.get_config_variable("ignore_configured_endpoint_urls"):
                endpoint = ConfiguredEndpointProvider(
                    full_config=session.full_config,
                    scoped_config=session.get_scoped_config(),
                    client_name="s3",
                ).provide()
        except BotoCoreError as exc:
            raise _unusable(exc) from exc
        found = {"region": region, "endpoint": endpoint}
        return {name: str(value) for name, value in found.items() if value}

    def find_region(self) -> str | None:
        """Return the configured region, in words such as eu-west-1. Raises botocore's BotoCoreError.

        AWS's command line and its other SDKs take AWS_REGION first; botocore does not know it.
        """
        region: str | None = self.open_session().get_config_variable("region")
        return os.environ.get("AWS_REGION") or region

    def s3_credentials(self) -> Callable[[], S3Credential] | None:
        """Return what gives current credentials at each call, or None where there are none (public buckets).

        Raises SourceError where they are configured and cannot be had, such as an SSO session that has ended.
        """
        try:
            credentials = self.open_session().get_credentials()
            if credentials is None:
                return None
            credentials.get_frozen_credentials()
        except credential_failures() as exc:
            raise _unusable(exc) from exc
        return lambda: _current(credentials)

    def open_session(self) -> Session:
        """Return botocore's session. Raises botocore's ProfileNotFound once it is used."""
        import botocore.session  # noqa: PLC0415 (78 ms, for who reads from S3)

        with self._lock:
            if self._session is None:
                self._session = botocore.session.Session(profile=self._profile)
            return self._session


def credential_failures() -> tuple[type[Exception], ...]:
    """Return what obtaining credentials raises.

    botocore's own errors; AWS's, where a role may not be taken; and those of a program that is to give credentials and
    is not there, or gives something else.
    """
    from botocore.exceptions import BotoCoreError, ClientError  # noqa: PLC0415 (40 ms, for who reads from S3)

    return BotoCoreError, ClientError, OSError, ValueError


def _current(credentials: Credentials) -> S3Credential:
    frozen = credentials.get_frozen_credentials()
    return {
        "access_key_id": frozen.access_key or "",
        "secret_access_key": frozen.secret_key or "",
        "token": frozen.token,
        "expires_at": datetime.now(UTC) + _CREDENTIAL_LIFE,
    }


def _unusable(exc: Exception) -> SourceError:
    from penstock.aws.calls import explain  # noqa: PLC0415 (51 ms, botocore)

    return SourceError(
        "could not obtain AWS credentials",
        detail=explain(exc),
        hint="Check AWS_PROFILE and the AWS configuration; if it uses SSO, run: aws sso login.",
    )
