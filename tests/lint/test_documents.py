"""README and the docs list what the code has: codes, refusals, targets of make, and what pip is to install."""

from __future__ import annotations

import re
import shlex
import subprocess
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, get_args

from penstock.core.values.notice import WarningCode
from penstock.diagnose.load import LOAD_ADVICE
from penstock.diagnose.rules.advice import ADVICE
from penstock.settings.refusals import REFUSALS
from support.repository import ROOT, read_document

if TYPE_CHECKING:
    import pytest


def test_readme_lists_what_is_refused() -> None:
    """Each by its name."""
    text = read_document("README.md")
    section = text[text.index("## Refused settings") :].lower()
    assert [each.name for each in REFUSALS if each.name.replace("multi_az", "multi-az") not in section] == []


def test_every_warning_is_documented() -> None:
    """By a line of the reference, in the order of the alphabet, and no other is."""
    found = re.findall(r"^\| `([a-z-]+)` \|", read_document("docs/reference/warnings.md"), re.MULTILINE)
    assert found == sorted(get_args(WarningCode)) == list(get_args(WarningCode))


def test_every_diagnosis_has_its_section() -> None:
    """With what it rests on; a finding prints what to do."""
    text = read_document("docs/diagnose.md")
    sections = {code: re.split(r"\n##? ", text.partition(f"\n## {code}\n")[2])[0] for code in sorted(ADVICE)}
    assert [code for code, section in sections.items() if "\n**Evidence**: " not in section] == []


def test_every_diagnosis_of_a_load_has_its_row() -> None:
    """With its claim, and what it is found by."""
    text = read_document("docs/diagnose.md")
    rows = dict(re.findall(r"^\| `([a-z-]+)`: (.*) \|$", text, re.MULTILINE))
    claims = {code: rows.get(code, "").split(" | ") for code in LOAD_ADVICE}
    assert [
        code
        for code, row in claims.items()
        if len(row) != 2
        or not all(row)
        or not LOAD_ADVICE[code].claim.startswith(f"the load's time {row[0].split()[0]} ")
    ] == []


def test_make_has_the_targets_that_readme_names(subtests: pytest.Subtests) -> None:
    """Make knows what README, CONTRIBUTING and the docs say."""
    for target in ("install", "demo", "test", "lint", "bench", "faults", "fuzz", "wheel", "bundle"):
        with subtests.test(target):
            done = subprocess.run(["make", "--dry-run", target], cwd=ROOT, capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stderr


_PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]

# Where texts say what to install: documentation, messages, and what is run.
_TEXTS = sorted(
    path
    for pattern in ("*.md", "docs/**/*.md", "src/**/*.py", "man/**/*.1", "Makefile", ".ci/*")
    for path in ROOT.glob(pattern)
    if path.is_file() and path.name != "CHANGELOG.md" and "decisions" not in path.parts
)
_PIP = re.compile(r"""\bpip install ((?:'[^'\n]*'|"[^"\n]*"|[^`'"\n&;.]|\.(?![ \n"'`]|$))+)""")
_NAME = re.compile(r"(?P<name>[\w.-]*)(?:\[(?P<extras>[\w,-]+)\])?(?:[=<>!~].*)?")


def _named(text: str) -> list[str]:
    """Return what each pip install of a text installs, and each penstock with an extra."""
    found = []
    for command in _PIP.findall(text):
        words = iter(shlex.split(command))
        # The value of --find-links is a folder.
        found += [word for word in words if not word.startswith("-") or (word == "--find-links" and not next(words))]
    return found + re.findall(r"[\w-]*penstock\[[a-z]+\]", text)


def test_what_texts_install_is_this_distribution_with_its_extras() -> None:
    """The distribution penstock of PyPI is another project; files have the name of the build, of any version."""
    file = f"{_PROJECT['name'].replace('-', '_')}-*"
    seen, wrong = 0, []
    for path in _TEXTS:
        # A man page spells a hyphen \-.
        text = path.read_text(encoding="utf-8", errors="replace").replace("\\-", "-")
        for word in _named(text):
            if "penstock" not in word and not word.startswith(".["):
                continue
            seen += 1
            named = _NAME.fullmatch(word)
            is_own = named is not None and named["name"] in (_PROJECT["name"], ".")
            extras = [] if named is None or named["extras"] is None else named["extras"].split(",")
            is_file = Path(word).name.startswith(file)
            if not is_file and not (is_own and set(extras) <= set(_PROJECT["optional-dependencies"])):
                wrong.append((str(path.relative_to(ROOT)), word))
    assert wrong == []
    assert seen > 15
