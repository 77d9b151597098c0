"""penstock loads files into PostgreSQL, reports what its sessions wait for, and puts temporary work on local disk.

The library's public names are listed below (docs/python.md). Each is imported when it is first used, so `import
penstock` alone takes no time.
"""

from __future__ import annotations

from importlib import import_module

# As in rust/Cargo.toml: `make release` sets both.
__version__ = "0.1.0"

_NAMES_BY_MODULE = {
    "penstock.api.functions": (
        "doctor",
        "load",
        "loads",
        "rejects",
        "repair",
        "resume",
        "retry",
        "temp_usage",
        "undo",
        "verify",
    ),
    "penstock.loading.loader": ("Loader",),
    "penstock.api.connect": ("connect_to",),
    "penstock.core.values.dialect": ("Dialect",),
    "penstock.core.values.job": ("LoadJob", "TargetJob"),
    "penstock.core.values.names": ("parse_table_name",),
    "penstock.loading.values.outcome": ("LoadOutcome", "Progress"),
    "penstock.core.errors": (
        "AwsError",
        "DataError",
        "Interrupted",
        "LabError",
        "PenstockError",
        "ServerError",
        "SourceError",
        "TargetError",
        "UsageError",
    ),
}
_MODULES = {name: module for module, names in _NAMES_BY_MODULE.items() for name in names}
# Public names that differ from the names in the code.
_RENAMED = {"Dialect": "DialectOptions", "Progress": "LoadProgress"}

__all__ = ["__version__", *_MODULES]  # noqa: PLE0604 (they are strings)


def __getattr__(name: str) -> object:
    """Import and return the object that has this public name."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    # Every package of penstock imports this module. If it had import statements, each package would depend on api, and
    # import-linter would report that. So import by name.
    found: object = getattr(import_module(_MODULES[name]), _RENAMED.get(name, name))
    return found


def __dir__() -> list[str]:
    """Return the module's names, including the public names that are not imported yet."""
    return sorted({*globals(), *__all__})
