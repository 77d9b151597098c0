"""The repository as files, for checks of what is written in it."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TESTS = ROOT / "tests"
DOCS = ROOT / "docs"
# The folders of both packages.
HOUSES = (ROOT / "src" / "penstock", ROOT / "src" / "penstock_lab")


@cache
def read_document(name: str) -> str:
    """Return the text of a document, by its path in the repository."""
    return (ROOT / name).read_text(encoding="utf-8")


def source_files(pattern: str = "*.py") -> list[Path]:
    """Return the files of both packages whose names match."""
    return sorted(path for house in HOUSES for path in house.rglob(pattern))


def name_module(path: Path) -> str:
    """Return the name by which a file of a package is imported."""
    return ".".join(path.relative_to(ROOT / "src").with_suffix("").parts).removesuffix(".__init__")


@cache
def parsed_sources() -> tuple[tuple[str, ast.Module], ...]:
    """Return the path below src and the syntax tree of each module of both packages."""
    return tuple(
        (path.relative_to(ROOT / "src").as_posix(), ast.parse(path.read_text(encoding="utf-8")))
        for path in source_files()
    )
