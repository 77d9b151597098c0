"""Values of root certificates that a client trusts, and of the files that were searched for them."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

from penstock.frozen import frozen


@frozen
class RootCertificate:
    """One certificate of an authority. `name` is its common name, or else its whole subject; `unit` is its OU.

    Amazon RDS has its own authorities. Amazon's public ones, which RDS Proxy uses, are "Amazon Root CA 1" and so on.
    """

    name: str
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
    """A file of certificates. `problem` is why the file cannot be read, None if it can."""

    path: Path
    certificates: tuple[RootCertificate, ...] = ()
    problem: str | None = None


@frozen
class RootSearch:
    """The files that were searched for root certificates, in order, and the one that is used, None if there is none.

    If `is_given` is true, the user named the file, and no other file was searched.
    """

    files: tuple[RootFile, ...]
    chosen: RootFile | None
    is_given: bool = False


@frozen
class ServerCertificate:
    """The certificate that a server showed. It has been verified, and so has the server's name in it."""

    name: str
    issuer: str
    expires_at: datetime
