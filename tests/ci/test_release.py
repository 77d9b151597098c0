"""What `make release` decides: whether the changelog allows a version, and what the bill of materials lists."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from penstock import __version__

_ROOT = Path(__file__).resolve().parents[2]


def _script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, _ROOT / ".ci" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


changelog, bom = _script("changelog"), _script("bom")

_BEFORE = "# Changelog\n\nWhat users notice.\n\n## Unreleased\n"
_LAST = "\n## 1.2.0 (2026-01-31)\n\n### Added\n- A thing.\n"


def _text(entries: str, last: str = _LAST) -> str:
    return f"{_BEFORE}\n{entries}\n{last}"


def test_this_changelog_allows_a_release() -> None:
    """Each entry is in its section: what a release would otherwise find out."""
    assert changelog.find_faults((_ROOT / "CHANGELOG.md").read_text("utf-8"), "1.0.0") == []


@pytest.mark.parametrize(
    ("entries", "version", "found"),
    [
        ("### Fixed\n- A load ends.", "1.2.1", []),
        ("### Changed\n- A load\n  ends.\n\n### Added\n- A thing.", "1.3.0", []),
        ("", "1.3.0", ["nothing is listed"]),
        ("### Fixed\n- A load ends.", "1.3", ["three numbers"]),
        ("### Fixed\n- A load ends.", "1.2.0", ["not newer than 1.2.0"]),
        ("### Fixed\n- A load ends.\n### Changed\n- It begins.", "1.3.0", ["in this order"]),
        ("### News\n- A load ends.", "1.3.0", ["in this order"]),
        ("### Fixed\n", "1.3.0", ["no entry: (none)"]),
        ("### Fixed\nA load ends.", "1.3.0", ["no entry: A load ends."]),
        ("### Added\n- A thing.", "1.2.1", ["would be a correction"]),
        ("### Changed\n- Breaking: a load begins.", "1.3.0", ["no new major version"]),
        ("### Changed\n- Breaking: a load begins.", "2.0.0", []),
    ],
)
def test_version_is_refused_for_what_the_changelog_lacks(entries: str, version: str, found: list[str]) -> None:
    """Each fault is named."""
    faults = changelog.find_faults(_text(entries), version)
    assert len(faults) == len(found)
    assert all(part in fault for part, fault in zip(found, faults, strict=True))


def test_before_1_0_a_breaking_change_needs_no_major_version() -> None:
    """Nothing is promised before."""
    entries = "### Changed\n- Breaking: a load begins."
    assert changelog.find_faults(_text(entries, "\n## 0.1.0 (2026-01-31)\n"), "0.2.0") == []


def test_released_entries_have_version_and_date() -> None:
    """What comes next is listed above them, and the next release has only that."""
    text = changelog.released(_text("### Fixed\n- A load ends."), "1.2.1", "2026-02-28")
    assert "\n## Unreleased\n\n## 1.2.1 (2026-02-28)\n\n### Fixed\n- A load ends.\n" in text
    assert changelog.unreleased(text) == ""
    assert changelog.find_faults(text, "1.2.1") == [
        'nothing is listed under "## Unreleased"',
        "version 1.2.1 is not newer than 1.2.1",
    ]


@pytest.mark.parametrize("name", changelog.VERSIONED)
def test_version_is_one_and_is_set_wherever_it_stands(name: str) -> None:
    """On one line of each file."""
    text = (_ROOT / name).read_text("utf-8")
    assert changelog.with_version(name, text, __version__) == text
    after = changelog.with_version(name, text, "9.8.7").splitlines()
    [line] = [new for old, new in zip(text.splitlines(), after, strict=True) if old != new]
    assert line in ('version = "9.8.7"', '__version__ = "9.8.7"')


def _component(name: str, **more: Any) -> dict[str, Any]:
    return {"type": "library", "bom-ref": name, "name": name, "version": "1", **more}


def test_bill_is_of_penstock_and_lists_what_is_compiled_in() -> None:
    """Two distributions may have the same crate; a reference may be in a bill only once."""
    crate = _component("memchr", components=[_component("inner")])
    bill = {
        "metadata": {"tools": []},
        "components": [_component("obstore"), _component("pg-penstock"), _component("rich")],
        "dependencies": [{"ref": "pg-penstock", "dependsOn": ["obstore", "rich"]}],
    }
    complete = bom.complete(bill, {"pg_penstock": [crate], "obstore": [crate]})
    own = complete["metadata"]["component"]
    assert (own["name"], own["type"], own["components"][0]["name"]) == ("pg-penstock", "application", "memchr")
    assert [component["name"] for component in complete["components"]] == ["obstore", "rich"]
    assert re.findall(r"'bom-ref': '(\w+-?\w+)'", str(complete)) == ["pg-penstock", "obstore", "rich"]
    assert complete["dependencies"] == bill["dependencies"]


def test_versions_of_bundles_are_those_of_their_wheels() -> None:
    """Other tags of a wheel, for another processor, make no other version."""
    assert bom.versions_of(["a_b-1.0-py3-none-any.whl", "c-2-cp311-abi3-manylinux_2_28_aarch64.whl"]) == {
        "a_b": "1.0",
        "c": "2",
    }
