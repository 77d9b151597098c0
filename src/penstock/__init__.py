"""penstock loads files into PostgreSQL as fast as the server can take them, and says what limits it.

As a library it is `load`, `Loader` and `connect_to`, which penstock.api defines; they are imported when first used, so
that importing the package alone costs nothing.
"""

from __future__ import annotations

from importlib import import_module

__version__ = "0.1.0"

__all__ = ["Loader", "__version__", "connect_to", "load"]


def __getattr__(name: str) -> object:
    """Return what penstock.api defines under a public name."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    # Every room imports the package: a plain import here would tie them all to the api, also for import-linter
    found: object = getattr(import_module("penstock.api"), name)
    return found


def __dir__() -> list[str]:
    """Return the public names, imported or not."""
    return sorted({*globals(), *__all__})
