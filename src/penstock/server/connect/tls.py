"""The TLS settings to use if the user gave none. Pure.

Servers of Amazon RDS are verified, including their host name. For others libpq's defaults apply.
docs/decisions/0011-tls-defaults.md gives the reasons.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from penstock.errors import UsageError
from penstock.model.server.endpoints import is_rds_endpoint

# The modes in which libpq may send a password unencrypted.
_MODES_WITHOUT_TLS = ("disable", "allow", "prefer")


def tls_defaults(
    given: Mapping[str, str], *, sends_token: bool, find_roots: Callable[[Sequence[str]], str]
) -> dict[str, str]:
    """Return the TLS settings to add to what the user gave.

    `find_roots` returns the file of root certificates, or raises. It is called only if that file is needed.
    `sends_token` is whether an IAM token will be sent, which anybody who reads it could use. Raises UsageError if the
    token would be sent unencrypted, and what `find_roots` raises.
    """
    mode = given.get("sslmode") or None
    if sends_token and mode in _MODES_WITHOUT_TLS:
        raise UsageError(
            f"IAM authentication needs TLS, but sslmode is {mode}",
            detail="The token would be sent unencrypted.",
            hint="Do not set sslmode; it is verify-full then.",
        )
    hosts = [host for host in given.get("host", "").split(",") if host]
    is_amazon = bool(hosts) and all(map(is_rds_endpoint, hosts))
    if not (is_amazon or sends_token) or mode not in (None, "verify-ca", "verify-full"):
        return {}
    defaults = {} if mode else {"sslmode": "verify-full"}
    if is_amazon and not given.get("sslrootcert"):
        defaults["sslrootcert"] = find_roots(hosts)
    return defaults
