"""Begins a release: checks the changelog, gives what is unreleased a version and a date, and sets the version.

    .ci/changelog.py VERSION DATE

It changes CHANGELOG.md and where the version stands, and prints what the release brings. CONTRIBUTING.md says what the
changelog must look like.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

# Where the version stands, and what is before it there.
VERSIONED = {
    "rust/Cargo.toml": 'name = "penstock-native"\nversion = "',
    "rust/Cargo.lock": 'name = "penstock-native"\nversion = "',
    "src/penstock/__init__.py": '__version__ = "',
}
SECTIONS = ("Security", "Changed", "Fixed", "Added")
UNRELEASED = "## Unreleased"
_RELEASE = re.compile(r"^## (\d+\.\d+\.\d+) \(\d{4}-\d\d-\d\d\)$", re.MULTILINE)


def unreleased(changelog: str) -> str:
    """Return what is listed under Unreleased, '' if that heading is missing."""
    return changelog.partition(f"\n{UNRELEASED}\n")[2].partition("\n## ")[0].strip()


def find_faults(changelog: str, version: str) -> list[str]:
    """Return why this version cannot be released; the list is empty if it can."""
    if not re.fullmatch(r"\d+\.\d+\.\d+", version):
        return [f'version "{version}" is not three numbers, such as 1.2.3']
    faults = []
    new = _numbers(version)
    entries = _entries(unreleased(changelog))
    names = [name for name, _ in entries]
    if not entries:
        faults.append(f'nothing is listed under "{UNRELEASED}"')
    if names != [name for name in SECTIONS if name in names]:
        faults.append(f"sections are {', '.join(SECTIONS)}, in this order and once; these are {', '.join(names)}")
    faults += [
        f"section {name} has text that is no entry: {text}" for name, items in entries for text in _no_entries(items)
    ]
    released = max(map(_numbers, _RELEASE.findall(changelog)), default=(0, 0, 0))
    if new <= released:
        faults.append(f"version {version} is not newer than {'.'.join(map(str, released))}")
    if new[2] > 0 and "Added" in names:
        faults.append(f"{version} would be a correction, but section Added has entries")
    is_breaking = any(item.startswith("- Breaking:") for _, items in entries for item in items)
    if is_breaking and released >= (1, 0, 0) and new[1:] != (0, 0):
        faults.append(f"an entry says Breaking, but {version} is no new major version")
    return faults


def released(changelog: str, version: str, date: str) -> str:
    """Return the changelog with a version and date for what was unreleased."""
    return changelog.replace(f"\n{UNRELEASED}\n", f"\n{UNRELEASED}\n\n## {version} ({date})\n", 1)


def with_version(name: str, text: str, version: str) -> str:
    """Return the text of one of the files in which the version stands with another version."""
    before, mark, after = text.partition(VERSIONED[name])
    assert mark
    return before + mark + version + after[after.index('"') :]


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


def _entries(text: str) -> list[tuple[str, list[str]]]:
    """Return the sections, each with its items, which may be wrapped."""
    sections = re.split(r"^### ", text, flags=re.MULTILINE)
    found = [("", sections[0])] if sections[0].strip() else []
    found += [(name, body) for name, _, body in (section.partition("\n") for section in sections[1:])]
    return [(name, [item for item in re.split(r"\n(?! )", body.strip()) if item]) for name, body in found]


def _no_entries(items: list[str]) -> list[str]:
    return [item for item in items if not item.startswith("- ")] if items else ["(none)"]


def main() -> None:
    """Change the files of the current directory, or say what is wrong and change nothing."""
    version, date = sys.argv[1:]
    path = Path("CHANGELOG.md")
    changelog = path.read_text("utf-8")
    faults = find_faults(changelog, version)
    if faults:
        sys.exit("\n".join(f"CHANGELOG.md: {fault}" for fault in faults))
    path.write_text(released(changelog, version, date), "utf-8")
    for name in VERSIONED:
        Path(name).write_text(with_version(name, Path(name).read_text("utf-8"), version), "utf-8")
    print(f"penstock {version}\n\n{unreleased(changelog).replace('### ', '')}")


if __name__ == "__main__":
    main()
