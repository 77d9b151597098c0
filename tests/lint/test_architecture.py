"""ARCHITECTURE.md names what exists: each path in it, and each folder of its map."""

from __future__ import annotations

import re

from support.repository import ROOT, read_document

_HOUSES = ("src/penstock", "src/penstock_lab", "src/penstock/loading", ".")
_TEXT = read_document("ARCHITECTURE.md")


def exists(path: str) -> bool:
    """Return whether a path exists below the repository or one of its packages."""
    return any((ROOT / house / path).exists() for house in _HOUSES)


def test_paths_in_the_text_exist() -> None:
    """Those in backquotes and in links. Names with capital letters stand for any."""
    named = {path for path in re.findall(r"`([a-z_.]+(?:/[a-z_0-9.]*)+)`", _TEXT) if "..." not in path}
    linked = {path for path in re.findall(r"\]\(([^)#:]+)", _TEXT) if path}
    assert len(named) > 40
    assert sorted(path for path in named | linked if not exists(path)) == []


def test_folders_of_the_map_are_those_that_exist() -> None:
    """The maps of both packages, and that of loading, name each folder once."""
    houses = (("penstock", "src/penstock"), ("penstock_lab", "src/penstock_lab"))
    for name, folder in houses:
        map_ = _TEXT.partition(f"src/{name}/\n")[2].partition("\n\n" if name == "penstock" else "```")[0]
        found = re.findall(r"(?:^|  )([a-z0-9_]+)/", map_, re.MULTILINE)
        there = [each.name for each in (ROOT / folder).iterdir() if (each / "__init__.py").exists()]
        inner = {"values", "connect", "catalogue", "aws", "host"}
        assert sorted(each for each in found if each not in inner) == sorted(there)
