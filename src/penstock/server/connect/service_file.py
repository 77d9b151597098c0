"""libpq's connection service file, read only to learn which settings it has.

libpq itself applies the file when it connects. But settings in a connection string take precedence over the file, so
penstock must know the file's settings before it adds a default. Format:
postgresql.org/docs/current/libpq-pgservice.html
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path


def read_service(name: str, environ: Mapping[str, str], *, service_file: str | None = None) -> dict[str, str]:
    """Return the settings of service `name`, or an empty dict if no file has it (libpq then reports that).

    The files are searched in libpq's order: the given file, otherwise PGSERVICEFILE, otherwise ~/.pg_service.conf; then
    PGSYSCONFDIR. A directory that was compiled into libpq is not known here.
    """
    for path in _candidate_paths(environ, service_file):
        try:
            text = path.read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue
        settings = parse_service(text.splitlines(), name)
        if settings is not None:
            return settings
    return {}


def has_service_file(environ: Mapping[str, str]) -> bool:
    """Return whether a service file exists in one of the places that libpq searches."""
    return any(path.is_file() for path in _candidate_paths(environ, None))


def parse_service(lines: Iterable[str], name: str) -> dict[str, str] | None:
    """Return the settings of the first section `[name]`, or None if there is none.

    >>> parse_service(["# ours", "[prod]", "host=db1", "port=6432", "[dev]", "host=db2"], "prod")
    {'host': 'db1', 'port': '6432'}
    """
    settings: dict[str, str] | None = None
    for line in map(str.strip, lines):
        if not line or line.startswith("#"):
            continue
        if line.startswith("["):
            if settings is not None:
                break
            settings = {} if line == f"[{name}]" else None
        elif settings is not None and "=" in line:
            key, _, value = line.partition("=")
            settings.setdefault(key.strip(), value.strip())
    return settings


def _candidate_paths(environ: Mapping[str, str], service_file: str | None) -> list[Path]:
    user_file = service_file or environ.get("PGSERVICEFILE")
    paths = [Path(user_file)] if user_file else []
    if not user_file and "HOME" in environ:
        paths.append(Path(environ["HOME"]) / ".pg_service.conf")
    if system_dir := environ.get("PGSYSCONFDIR"):
        paths.append(Path(system_dir) / "pg_service.conf")
    return paths
