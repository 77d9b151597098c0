"""Fixtures for tests of samplers."""

from __future__ import annotations

import pytest

from support.servers import majors_to_test


@pytest.fixture
def debian15() -> int:
    """Provide the version that comes with contrib; skip where it is not installed."""
    if 15 not in majors_to_test():
        pytest.skip("Debian's PostgreSQL 15 with contrib is not installed")
    return 15
