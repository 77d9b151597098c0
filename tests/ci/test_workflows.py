"""The forge's workflows: their rights, and what they run. `make lint` has actionlint read them."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

_ROOT = Path(__file__).resolve().parents[2]
_WORKFLOWS = sorted((_ROOT / ".github" / "workflows").glob("*.yml"))
_RELEASE = _ROOT / ".github" / "workflows" / "release.yml"
_PINNED = re.compile(r"[\w./-]+@[0-9a-f]{40}")


def _jobs(path: Path) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = yaml.safe_load(path.read_text("utf-8"))["jobs"]
    return found


def test_only_jobs_that_attest_or_publish_may_write() -> None:
    """A job that builds or tries runs code of others: its token may read the repository, and nothing else."""
    rights: set[tuple[str, str]] = set()
    for path in _WORKFLOWS:
        assert yaml.safe_load(path.read_text("utf-8"))["permissions"] in ({}, {"contents": "read"})
        for name, job in _jobs(path).items():
            rights |= {(name, right) for right, word in job.get("permissions", {}).items() if word == "write"}
    assert rights == {
        ("attest", "attestations"),
        ("attest", "id-token"),
        ("publish", "id-token"),
        ("files", "contents"),
    }


@pytest.mark.parametrize("path", _WORKFLOWS, ids=lambda path: path.stem)
def test_workflow_stores_no_secret_and_pins_its_actions(path: Path) -> None:
    """A tag of an action can be moved; the hash of a commit cannot."""
    text = path.read_text("utf-8")
    assert "secrets." not in text
    steps = [step for job in _jobs(path).values() for step in job["steps"]]
    used = [step["uses"] for step in steps if "uses" in step]
    assert used
    assert [action for action in used if not _PINNED.fullmatch(action)] == []


def test_nothing_is_published_before_it_is_tried() -> None:
    """Built from the tag by `make release`, then tried, attested and published, one after the other."""
    jobs = _jobs(_RELEASE)
    assert {name: job.get("needs") for name, job in jobs.items()} == {
        "build": None,
        "try": "build",
        "attest": "try",
        "publish": "attest",
        "files": "publish",
    }


# By cli/cli's pkg/cmd/release/create/create.go: with --repo, no notes are taken from a local tag.
_GH = """#!/bin/bash -e
case "$*" in
    "api repos/me/penstock/git/ref/tags/v1.2.3 --jq .object.url") echo https://forge/tags/7 ;;
    "api https://forge/tags/7 --jq .message") echo "What is new" ;;
    "release create v1.2.3 --repo me/penstock --verify-tag --notes-file "*) echo "$3 $9: $(cat "$8")" >made ;;
    *) echo "unexpected: $*" >&2 && exit 1 ;;
esac
"""


def test_release_has_the_message_of_its_tag(tmp_path: Path) -> None:
    """The job has no clone: gh asks the forge. A stand-in for gh answers, and takes nothing else."""
    (step,) = [step for step in _jobs(_RELEASE)["files"]["steps"] if "run" in step]
    (tmp_path / "dist").mkdir()
    (tmp_path / "dist" / "a.whl").touch()
    gh = tmp_path / "gh"
    gh.write_text(_GH)
    gh.chmod(0o755)
    given = {"GITHUB_REF_NAME": "v1.2.3", "GITHUB_REPOSITORY": "me/penstock", "PATH": f"{tmp_path}:/usr/bin:/bin"}
    subprocess.run(["bash", "-e", "-c", step["run"]], cwd=tmp_path, env=given, check=True)
    assert (tmp_path / "made").read_text() == "v1.2.3 dist/a.whl: What is new\n"
