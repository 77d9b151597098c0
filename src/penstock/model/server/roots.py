"""Root certificates that a client trusts, and where they were looked for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from datetime import datetime
    from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class RootCertificate:
    """One certificate of an authority: `name` is its common name, or else what the subject has; `unit` its OU.

    Amazon RDS has authorities of its own. Amazon's public ones, which RDS Proxy uses, are "Amazon Root CA 1" and so on.
    """

    name: str
    unit: str | None
    expires_at: datetime

    @property
    def is_for_rds(self) -> bool:
        """Return whether it is an authority of Amazon RDS."""
        return self.unit == "Amazon RDS"

    @property
    def is_public_amazon(self) -> bool:
        """Return whether it is one of Amazon's public authorities."""
        return self.name.startswith("Amazon Root CA ")

    @property
    def is_amazons(self) -> bool:
        """Return whether it is Amazon's, of either kind."""
        return self.is_for_rds or self.is_public_amazon


@dataclass(frozen=True, slots=True, kw_only=True)
class RootFile:
    """A file of certificates: `problem` tells why it cannot be read, None where it can."""

    path: Path
    certificates: tuple[RootCertificate, ...] = ()
    problem: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RootSearch:
    """Where root certificates were looked for, in order, and which file would be used, None where none will do.

    `is_given`: the user named the file, so that no other is looked for.
    """

    files: tuple[RootFile, ...]
    chosen: RootFile | None
    is_given: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerCertificate:
    """The certificate that a server showed and that was verified, its name included."""

    name: str
    issuer: str
    expires_at: datetime
