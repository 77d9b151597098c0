"""penstock loads files into PostgreSQL, says what its sessions wait for, and puts temporary work on local disk.

As a library it is the names below (docs/python.md); they are imported when first used, so that importing the package
alone costs nothing.
"""

from __future__ import annotations

from importlib import import_module

__version__ = "0.1.0"

_PLACES = {
    "penstock.api.functions": ("doctor", "load", "loads", "repair", "retry", "temp_usage"),
    "penstock.api.loader": ("Loader",),
    "penstock.api.connect": ("connect_to",),
    "penstock.model.source.dialect": ("Dialect",),
    "penstock.model.load.outcome": ("LoadOutcome", "Progress"),
    "penstock.errors": (
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
_MODULES = {name: module for module, names in _PLACES.items() for name in names}
# What users write shorter than the code does.
_RENAMED = {"Dialect": "DialectOptions", "Progress": "LoadProgress"}

__all__ = ["__version__", *_MODULES]  # noqa: PLE0604 (they are strings)


def __getattr__(name: str) -> object:
    """Return what a room defines under a public name."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    # Every room imports the package: a plain import here would tie them all to the api, also for import-linter
    found: object = getattr(import_module(_MODULES[name]), _RENAMED.get(name, name))
    return found


def __dir__() -> list[str]:
    """Return the public names, imported or not."""
    return sorted({*globals(), *__all__})
