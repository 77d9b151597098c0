"""botocore's clients, with the machine's own credentials, region and endpoints (AWS_ENDPOINT_URL and the like)."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from botocore.config import Config
from botocore.exceptions import BotoCoreError

from penstock.aws.calls import explain
from penstock.aws.credentials import AwsCredentials, credential_failures
from penstock.errors import AwsError

if TYPE_CHECKING:
    from botocore.session import Session

# A private network without a way to some service drops packets: that must not look like a long answer.
_CONNECT_TIMEOUT_S = 3
_READ_TIMEOUT_S = 20
# Throttling and lost connections; botocore waits a little longer each time.
_ATTEMPTS = 3


class AwsClients:
    """Clients of one region, each made when it is first asked for; threads may share them.

    `profile` as for AwsCredentials. Without `region` the configured one counts. Where `timeout_s` is given, nothing is
    tried twice or waited for longer. Methods raise AwsError.
    """

    def __init__(
        self, *, region: str | None = None, profile: str | None = None, timeout_s: float | None = None
    ) -> None:
        self._credentials = AwsCredentials(profile=profile)
        self._region = region
        self._timeout_s = timeout_s
        self._lock = threading.Lock()
        self._clients: dict[str, Any] = {}

    @property
    def region(self) -> str:
        """Return the region, in words such as eu-west-1."""
        if self._region is None:
            try:
                self._region = self._credentials.find_region()
            except BotoCoreError as exc:
                raise _unusable(exc) from exc
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
        # Making clients is not safe in threads, using them is.
        with self._lock:
            if service not in self._clients:
                session = self._credentials.open_session()
                _check_credentials(session)
                try:
                    self._clients[service] = session.create_client(service, region_name=region, config=config)
                except (BotoCoreError, ValueError) as exc:
                    # ValueError: an AWS_ENDPOINT_URL that is no URL.
                    raise AwsError(
                        f"could not set up a client of AWS's {service}",
                        detail=str(exc),
                        hint="Check the region and AWS_ENDPOINT_URL.",
                    ) from exc
            return self._clients[service]

    def has_prompt(self) -> bool:
        """Whether obtaining credentials may ask the user for the code of a device."""
        try:
            session = self._credentials.open_session()
            profiles: dict[str, dict[str, str]] = session.full_config.get("profiles", {})
        except BotoCoreError as exc:
            raise _unusable(exc) from exc
        # Roles may be taken by way of others.
        name, passed = session.profile or "default", set[str]()
        while name in profiles and name not in passed:
            if "mfa_serial" in profiles[name]:
                return True
            passed.add(name)
            name = profiles[name].get("source_profile", "")
        return False

    def close(self) -> None:
        """Let go of the connections."""
        with self._lock:
            for client in self._clients.values():
                client.close()
            self._clients.clear()


def _check_credentials(session: Session) -> None:
    try:
        credentials = session.get_credentials()
    except credential_failures() as exc:
        raise _unusable(exc) from exc
    if credentials is None:
        raise AwsError(
            "no AWS credentials were found",
            hint="Name a profile with --profile or AWS_PROFILE, or configure one: aws configure.",
        )


def _unusable(exc: Exception) -> AwsError:
    return AwsError(
        "could not obtain AWS credentials",
        detail=explain(exc),
        hint="Check AWS_PROFILE and the AWS configuration; if it uses SSO, run: aws sso login.",
    )
