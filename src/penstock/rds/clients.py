"""Creates botocore's clients, and finds the instance and cluster of an endpoint or identifier.

The clients use the machine's configured credentials, region and endpoints (AWS_ENDPOINT_URL). The functions that find
an instance or cluster check that the one found is the one requested.
"""

from __future__ import annotations

import re
import socket
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from botocore.config import Config
from botocore.exceptions import BotoCoreError

from penstock.core.aws.credentials import AwsCredentials, credential_failures, unusable
from penstock.core.connect.endpoints import RdsEndpoint, parse_endpoint
from penstock.core.errors import AwsError
from penstock.core.slotted import slotted

if TYPE_CHECKING:
    from botocore.session import Session

    from penstock.core.aws.calls import Calls, Raw
    from penstock.rds.values import FoundBy

    Resolve = Callable[[str], Sequence[str]]

# How long connecting and reading may take. The limit for connecting is short: connecting takes long only if there is no
# route to the service, because a private network drops the packets.
_CONNECT_TIMEOUT_S = 3
_READ_TIMEOUT_S = 20
# How often a call is tried in all if AWS throttles it or the connection is lost. botocore waits longer before each new
# attempt.
_ATTEMPTS = 3


class AwsClients:
    """Makes botocore's clients of one region, each at its first use.

    Calling the object with a service returns its client. Threads may share the clients. Methods raise AwsError.
    """

    def __init__(
        self,
        *,
        # The region's name, None for the configured region.
        region: str | None = None,
        # The name of a configured profile, None for AWS_PROFILE or the default profile.
        profile: str | None = None,
        # How long connecting and reading may take. If it is given, nothing is retried.
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
                self._region = self._credentials.read_region()
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
                    # botocore raises ValueError if AWS_ENDPOINT_URL is not a URL.
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
        """Close all connections to AWS."""
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


# Patterns of resource ids. They match no identifier, because AWS stores identifiers in lower case.
_INSTANCE_ID = re.compile(r"db-[A-Z0-9]{20,}")
_CLUSTER_ID = re.compile(r"cluster-[A-Z0-9]{20,}")

_NOT_A_SERVER = {
    "proxy": "is a proxy, and its name does not show which server it uses",
    "global": "is the global endpoint of an Aurora global database",
    "shards": "leads to the shards of an Aurora Limitless Database",
}


@slotted
class Located:
    """The instance and the cluster of an endpoint or identifier, as RDS's API describes them. One may be None."""

    found_by: FoundBy
    instance: Raw | None
    cluster: Raw | None
    # All instances that the endpoint may lead to, as in RdsDescription.
    may_reach: tuple[str, ...]


def find_endpoint(host: str, *, resolve: Resolve) -> RdsEndpoint | None:
    """Return the RDS endpoint that a host name is, or that DNS resolves it to; None if there is none.

    `resolve` returns the names that DNS gives for a host name. Raises AwsError for an endpoint that does not belong to
    one server, such as a proxy's.
    """
    found = parse_endpoint(host)
    if found is None and "." in host:
        found = next((known for name in resolve(host) if (known := parse_endpoint(name))), None)
    if found is not None and found.kind in _NOT_A_SERVER:
        raise AwsError(
            f"{found.host} {_NOT_A_SERVER[found.kind]}", hint="Name the endpoint of the instance or the cluster itself."
        )
    return found


def resolve_names(host: str) -> list[str]:
    """Return the names that DNS gives for a host name, in the order of its CNAME records. Empty if it is unknown."""
    try:
        canonical, aliases, _ = socket.gethostbyname_ex(host)
    except (OSError, UnicodeError):  # UnicodeError: what is between two dots is empty or too long
        return []
    return [*aliases, canonical]


def locate_endpoint(calls: Calls, endpoint: RdsEndpoint) -> Located:
    """Return the instance and the cluster to which an endpoint leads.

    Raises AwsError if they do not exist or belong to another account.
    """
    if endpoint.kind == "instance":
        return _locate_with_cluster(calls, _need_instance(calls, endpoint), found_by="instance")
    if endpoint.kind == "custom":
        return _locate_custom_endpoint(calls, endpoint)
    cluster = _need_cluster(calls, endpoint.name, endpoint=endpoint)
    is_writer = endpoint.kind == "writer"
    _check_host(endpoint, cluster.get("Endpoint" if is_writer else "ReaderEndpoint"), "cluster")
    return _locate_member(calls, cluster, _choose_members(cluster, is_writer=is_writer), found_by=_kind(endpoint))


def locate_identifier(calls: Calls, identifier: str) -> Located:
    """Return the instance with an identifier or resource id, or the cluster if there is no such instance.

    Raises AwsError.
    """
    if _INSTANCE_ID.fullmatch(identifier):
        named = [{"Name": "dbi-resource-id", "Values": [identifier]}]
        instances = calls.need("rds", "describe_db_instances", "DBInstances", Filters=named)
    elif _CLUSTER_ID.fullmatch(identifier):
        instances = []
    else:
        instances = _find_instance(calls, identifier)
    if instances:
        return _locate_with_cluster(calls, instances[0], found_by="identifier")
    cluster = _need_cluster(calls, identifier)
    return _locate_member(calls, cluster, _choose_members(cluster, is_writer=True), found_by="identifier")


def _need_instance(calls: Calls, endpoint: RdsEndpoint) -> Raw:
    instances = _find_instance(calls, endpoint.name)
    if not instances:
        raise _not_there("instance", endpoint.name, endpoint)
    _check_host(endpoint, instances[0].get("Endpoint", {}).get("Address"), "instance")
    return instances[0]


def _locate_custom_endpoint(calls: Calls, endpoint: RdsEndpoint) -> Located:
    found = calls.need(
        "rds", "describe_db_cluster_endpoints", "DBClusterEndpoints", DBClusterEndpointIdentifier=endpoint.name
    )
    if not found:
        raise _not_there("custom endpoint", endpoint.name, endpoint)
    custom = found[0]
    _check_host(endpoint, custom.get("Endpoint"), "custom endpoint")
    cluster = _need_cluster(calls, custom["DBClusterIdentifier"], endpoint=endpoint)
    members = _choose_members(cluster, is_writer=custom.get("CustomEndpointType") != "READER")
    if custom.get("CustomEndpointType") == "ANY":
        members = [member["DBInstanceIdentifier"] for member in cluster.get("DBClusterMembers", [])]
    if custom.get("StaticMembers"):
        members = [name for name in members if name in custom["StaticMembers"]]
    members = [name for name in members if name not in custom.get("ExcludedMembers", [])]
    return _locate_member(calls, cluster, members, found_by="custom")


def _locate_with_cluster(calls: Calls, instance: Raw, *, found_by: FoundBy) -> Located:
    cluster = None
    if instance.get("DBClusterIdentifier"):
        clusters = calls.ask(
            "rds", "describe_db_clusters", "DBClusters", DBClusterIdentifier=instance["DBClusterIdentifier"]
        )
        cluster = clusters[0] if clusters else None
    reached = (instance["DBInstanceIdentifier"],)
    return Located(found_by=found_by, instance=instance, cluster=cluster, may_reach=reached)


def _locate_member(calls: Calls, cluster: Raw, members: Sequence[str], *, found_by: FoundBy) -> Located:
    instance = None
    if members:
        found = calls.ask("rds", "describe_db_instances", "DBInstances", DBInstanceIdentifier=members[0])
        instance = found[0] if found else None
    return Located(found_by=found_by, instance=instance, cluster=cluster, may_reach=tuple(members))


def _choose_members(cluster: Raw, *, is_writer: bool) -> list[str]:
    """Return the writer or the readers.

    If a cluster has no readers, return the writer, as RDS does for a reader endpoint.
    """
    members = cluster.get("DBClusterMembers", [])
    chosen = [member["DBInstanceIdentifier"] for member in members if member.get("IsClusterWriter", False) is is_writer]
    return sorted(chosen) or [member["DBInstanceIdentifier"] for member in members if member.get("IsClusterWriter")]


def _find_instance(calls: Calls, name: str) -> list[Raw]:
    return calls.need("rds", "describe_db_instances", "DBInstances", DBInstanceIdentifier=name)


def _need_cluster(calls: Calls, name: str, *, endpoint: RdsEndpoint | None = None) -> Raw:
    if _CLUSTER_ID.fullmatch(name):
        named = [{"Name": "db-cluster-resource-id", "Values": [name]}]
        clusters = calls.need("rds", "describe_db_clusters", "DBClusters", Filters=named)
    else:
        clusters = calls.need("rds", "describe_db_clusters", "DBClusters", DBClusterIdentifier=name)
    if not clusters:
        raise _not_there("instance or cluster" if endpoint is None else "cluster", name, endpoint)
    return clusters[0]


def _check_host(endpoint: RdsEndpoint, actual: str | None, what: str) -> None:
    """Raise AwsError if the address of the found instance or cluster is not the endpoint's host.

    Names are unique only within an account, so another account may have an instance or cluster of the same name.
    """
    if actual is None or actual.lower() != endpoint.host:
        raise AwsError(
            f'{what} "{endpoint.name}" of this AWS account is not the one at {endpoint.host}',
            detail=f"Its endpoint is {actual or 'not known yet'}.",
            hint="Choose the profile of the account that has it with --profile or AWS_PROFILE.",
        )


def _not_there(what: str, name: str, endpoint: RdsEndpoint | None) -> AwsError:
    where = "here" if endpoint is None else f"in {endpoint.region}"
    return AwsError(
        f'this AWS account has no {what} "{name}" {where}',
        hint="Choose the account with --profile or AWS_PROFILE, and the region with --region or AWS_REGION."
        if endpoint is None
        else "Choose the profile of the account that has it with --profile or AWS_PROFILE.",
    )


def _kind(endpoint: RdsEndpoint) -> FoundBy:
    assert endpoint.kind in ("writer", "reader")
    return endpoint.kind
