"""Creates botocore's clients, with the machine's configured credentials, region and endpoints (AWS_ENDPOINT_URL)."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from botocore.config import Config
from botocore.exceptions import BotoCoreError

from penstock.core.aws.credentials import AwsCredentials, credential_failures, unusable
from penstock.core.errors import AwsError

if TYPE_CHECKING:
    from botocore.session import Session

# A private network without a route to a service drops packets. A short timeout distinguishes this from a slow answer.
_CONNECT_TIMEOUT_S = 3
_READ_TIMEOUT_S = 20
# How often a call is tried after throttling and lost connections. botocore waits longer before each attempt.
_ATTEMPTS = 3


class AwsClients:
    """Clients of one region. Each is created when it is first used. Threads may share them. Methods raise AwsError."""

    def __init__(
        self,
        *,
        # None for the configured region.
        region: str | None = None,
        # The name of a configured profile, None for AWS_PROFILE or the default profile.
        profile: str | None = None,
        # If given, connecting and reading wait at most this long, and nothing is retried.
        timeout_s: float | None = None,
    ) -> None:
        self._credentials = AwsCredentials(profile=profile)
        self._region = region
        self._timeout_s = timeout_s
        self._lock = threading.Lock()
        self._clients: dict[str, Any] = {}

    @property
    def region(self) -> str:
        """Return the name of the region, such as eu-west-1."""
        if self._region is None:
            try:
                self._region = self._credentials.find_region()
            except BotoCoreError as exc:
                raise unusable(exc, AwsError) from exc
        if not self._region:
            raise AwsError(
                "no AWS region is configured",
                hint="Name it with --region or AWS_REGION, or name the instance by its endpoint, which has it.",
            )
        return self._region

    def __call__(self, service: str) -> Any:
        """Return the client of a service."""
        config = Config(
            connect_timeout=self._timeout_s or _CONNECT_TIMEOUT_S,
            read_timeout=self._timeout_s or _READ_TIMEOUT_S,
            retries={"mode": "standard", "total_max_attempts": 1 if self._timeout_s else _ATTEMPTS},
        )
        region = self.region
        # Threads may share a client, but only one at a time may create clients.
        with self._lock:
            if service not in self._clients:
                session = self._credentials.open_session()
                _check_credentials(session)
                try:
                    self._clients[service] = session.create_client(service, region_name=region, config=config)
                except (BotoCoreError, ValueError) as exc:
                    # ValueError: AWS_ENDPOINT_URL is not a URL.
                    raise AwsError(
                        f"could not set up a client of AWS's {service}",
                        detail=str(exc),
                        hint="Check the region and AWS_ENDPOINT_URL.",
                    ) from exc
            return self._clients[service]

    def has_prompt(self) -> bool:
        """Return whether obtaining credentials may prompt the user for an MFA code."""
        try:
            session = self._credentials.open_session()
            profiles: dict[str, dict[str, str]] = session.full_config.get("profiles", {})
        except BotoCoreError as exc:
            raise unusable(exc, AwsError) from exc
        # A role may be assumed through the profile of another role.
        name, passed = session.profile or "default", set[str]()
        while name in profiles and name not in passed:
            if "mfa_serial" in profiles[name]:
                return True
            passed.add(name)
            name = profiles[name].get("source_profile", "")
        return False

    def close(self) -> None:
        """Close all connections."""
        with self._lock:
            for client in self._clients.values():
                client.close()
            self._clients.clear()


def _check_credentials(session: Session) -> None:
    try:
        credentials = session.get_credentials()
    except credential_failures() as exc:
        raise unusable(exc, AwsError) from exc
    if credentials is None:
        raise AwsError(
            "no AWS credentials were found",
            hint="Name a profile with --profile or AWS_PROFILE, or configure one: aws configure.",
        )
