"""Root certificates that a client trusts, and the files in which they were searched."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from datetime import datetime
    from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class RootCertificate:
    """One certificate of an authority. `name` is its common name, or else its whole subject; `unit` is its OU.

    Amazon RDS has its own authorities. Amazon's public ones, which RDS Proxy uses, are "Amazon Root CA 1" and so on.
    """

    name: str
    unit: str | None
    expires_at: datetime

    @property
    def is_for_rds(self) -> bool:
        """Return whether it belongs to an authority of Amazon RDS."""
        return self.unit == "Amazon RDS"

    @property
    def is_public_amazon(self) -> bool:
        """Return whether it belongs to one of Amazon's public authorities."""
        return self.name.startswith("Amazon Root CA ")

    @property
    def is_amazons(self) -> bool:
        """Return whether it belongs to Amazon, of either kind."""
        return self.is_for_rds or self.is_public_amazon


@dataclass(frozen=True, slots=True, kw_only=True)
class RootFile:
    """A file of certificates. `problem` is why it cannot be read, or None."""

    path: Path
    certificates: tuple[RootCertificate, ...] = ()
    problem: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RootSearch:
    """The files that were searched for root certificates, in order, and the one that is used, None if there is none.

    `is_given` is whether the user named the file; then no other is searched.
    """

    files: tuple[RootFile, ...]
    chosen: RootFile | None
    is_given: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerCertificate:
    """The certificate that a server showed. It has been verified, including the server's name."""

    name: str
    issuer: str
    expires_at: datetime
