"""Values of root certificates that a client trusts, and of the files that were searched for them."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

from penstock.frozen import frozen


@frozen
class RootCertificate:
    """One certificate of an authority.

    Amazon RDS has its own authorities. Amazon's public ones, which RDS Proxy uses, are "Amazon Root CA 1" and so on.
    """

    # The common name, or the whole subject if there is none.
    name: str
    # The organizational unit (OU).
    unit: str | None
    expires_at: datetime

    @property
    def is_for_rds(self) -> bool:
        """Return whether the certificate belongs to an authority of Amazon RDS."""
        return self.unit == "Amazon RDS"

    @property
    def is_public_amazon(self) -> bool:
        """Return whether the certificate belongs to one of Amazon's public authorities."""
        return self.name.startswith("Amazon Root CA ")

    @property
    def is_amazons(self) -> bool:
        """Return whether the certificate belongs to Amazon: to an authority of RDS or to a public one."""
        return self.is_for_rds or self.is_public_amazon


@frozen
class RootFile:
    """A file of certificates."""

    path: Path
    certificates: tuple[RootCertificate, ...] = ()
    # Why the file cannot be read, None if it can.
    problem: str | None = None


@frozen
class RootSearch:
    """The files that were searched for root certificates."""

    # In the order of the search.
    files: tuple[RootFile, ...]
    # The file that is used, None if there is none.
    chosen: RootFile | None
    # Whether the user named the file, so that no other file was searched.
    is_given: bool = False


@frozen
class ServerCertificate:
    """The certificate that a server showed. The certificate has been verified, and so has the server's name in it."""

    name: str
    issuer: str
    expires_at: datetime
