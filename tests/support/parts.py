"""Marks cases of a test for a part of the suite (conftest.py)."""

from __future__ import annotations

from typing import Any

import pytest


def rest(*values: Any) -> Any:
    """Return a case that only `make test-rest` runs."""
    return pytest.param(*values, marks=pytest.mark.part("rest"))
