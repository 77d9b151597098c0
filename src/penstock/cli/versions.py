"""What a bug report needs: the versions of penstock and of all that it runs with (`penstock --version --json`)."""

from __future__ import annotations

import platform

from penstock import __version__, _native
from penstock.core.connect.connection import describe_driver
from penstock.core.errors import LabError
from penstock.embedded.installations import find_installations, read_version
from penstock.ledger.schema import VERSION


def describe_versions() -> dict[str, object]:
    """Return the versions of penstock and of what it runs with, by name; None for what is unknown or not installed.

    Names of hosts or users are not included.
    """
    return {
        "penstock": __version__,
        "ledger": VERSION,
        "python": f"{platform.python_version()} ({platform.python_implementation()})",
        **describe_driver(),
        "embedded_server": _find_embedded(),
        "machine": platform.machine(),
        "cpu_features": _native.used_features(),
        "os": _name_system(),
        "kernel": platform.release(),
        "glibc": platform.libc_ver()[1] or None,
    }


def _find_embedded() -> str | None:
    """Return the version of the PostgreSQL that the embedded server would run, and where it comes from."""
    try:
        installation = next(find_installations(), None)
        return None if installation is None else f"{read_version(installation)} ({installation.origin})"
    except LabError:
        return None


def _name_system() -> str:
    try:
        return platform.freedesktop_os_release()["PRETTY_NAME"]
    except (OSError, KeyError):
        return platform.system()
