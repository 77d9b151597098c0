"""The identity of a server, by which penstock notices that a connection leads to another server."""

from __future__ import annotations

from typing import Self

from penstock.frozen import frozen


@frozen
class ServerIdentity:
    """The row of server_identity.sql: the identity of a server, by which a failover is noticed.

    A copy of a server has the same system identifier, but another timeline once it is promoted.
    """

    system_identifier: int
    timeline: int
    # None on a Unix socket.
    address: str | None
    port: int | None
    # The resource id of Amazon RDS. If it is set, it alone identifies the server.
    resource_id: str | None = None

    @classmethod
    def of_resource(cls, resource_id: str | None, *, address: str | None = None) -> Self:
        """Return the identity of a server that Amazon RDS names."""
        return cls(system_identifier=0, timeline=0, address=address, port=None, resource_id=resource_id)

    def is_same(self, other: ServerIdentity) -> bool:
        """Return whether both are the same server. The address is not compared, because it may differ by route."""
        if self.resource_id is not None or other.resource_id is not None:
            return self.resource_id == other.resource_id
        return (self.system_identifier, self.timeline) == (other.system_identifier, other.timeline)

    def __str__(self) -> str:
        if self.resource_id is not None:
            return f"{self.address} of Amazon RDS ({self.resource_id})"
        place = f"{self.address}:{self.port}" if self.address else "a Unix socket"
        return f"the server at {place} (system {self.system_identifier}, timeline {self.timeline})"
