"""docs/rds.md has the IAM policy that `penstock rds prepare-s3-import` needs, and nothing more."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from support.moto_rds import Events

if TYPE_CHECKING:
    from collections.abc import Callable

    from rds.s3_import.conftest import Place

pytestmark = pytest.mark.part("rest")

_PAGE = (Path(__file__).parents[3] / "docs" / "rds.md").read_text(encoding="utf-8")

# What AWS checks besides the action of the call itself: source, IAM's and RDS's lists of actions.
_WITH_OTHERS = {"PassRole", "TagRole", "TagPolicy", "DescribeKey", "DeletePolicyVersion"}


def test_policy_allows_what_is_asked_and_nothing_else(make_place: Callable[..., Place]) -> None:
    """By a run for an instance and one for a cluster, each undone."""
    places = [make_place(kind) for kind in ("instance", "cluster")]
    with Events().watching() as events:
        for place in places:
            assert place.run() == 0
            assert place.run() == 0
            assert place.run("--undo") == 0
    section = _PAGE[_PAGE.index("### Permissions for it") :]
    match = re.search(r"^```json\n(.*?)^```", section, re.DOTALL | re.MULTILINE)
    assert match is not None
    actions = [action for statement in json.loads(match[1])["Statement"] for action in statement["Action"]]
    allowed = {action.partition(":")[2] for action in actions}
    asked = {"GetEncryptionConfiguration" if name == "GetBucketEncryption" else name for name in events.asked}
    assert allowed == asked | _WITH_OTHERS
