"""The package itself: what `import penstock` gives, and what it costs."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import penstock
from penstock.api.connect import connect_to
from penstock.api.functions import load
from penstock.loading.loader import Loader


def test_public_names_are_those_of_the_stub() -> None:
    """All of them can be had, and type checkers know them."""
    assert (penstock.load, penstock.Loader, penstock.connect_to) == (load, Loader, connect_to)
    assert all(getattr(penstock, name) is not None for name in penstock.__all__)
    stub = Path(penstock.__file__).with_suffix(".pyi").read_text(encoding="utf-8")
    known = {first or second for first, second in re.findall(r" as (\w+)$|^(\w+) = ", stub, re.MULTILINE)}
    assert {*known, "__version__"} == set(penstock.__all__) <= set(dir(penstock))


def test_unknown_name_is_an_attribute_error() -> None:
    """As of any module."""
    with pytest.raises(AttributeError, match="has no attribute 'unload'"):
        _ = penstock.unload


def test_importing_the_package_alone_is_light() -> None:
    """The command line asks it for the version only."""
    program = "import sys, penstock; print(*(name for name in sys.modules if name.startswith('penstock.')))"
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == ""


_ROOT = Path(__file__).parents[2]
_PROJECT = tomllib.loads((_ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]

# Where texts say what to install: documentation, messages, and what is run.
_TEXTS = sorted(
    path
    for pattern in ("*.md", "docs/**/*.md", "src/**/*.py", "man/**/*.1", "Makefile", ".ci/*")
    for path in _ROOT.glob(pattern)
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
                wrong.append((str(path.relative_to(_ROOT)), word))
    assert wrong == []
    assert seen > 15
