"""Aurora DSQL is refused before anything is sent to it."""

from __future__ import annotations

import pytest

from penstock.core.connect.conninfo import check_settings
from penstock.core.errors import UsageError


@pytest.mark.parametrize(
    "host",
    [
        "foo0bar1baz2quux3quuux4.dsql.us-east-1.on.aws",
        "db1.example.com,foo0bar1baz2quux3quuux4.dsql.eu-west-1.on.aws.",
    ],
)
def test_dsql_is_refused_by_its_host_name(host: str) -> None:
    """The hint names its own loader."""
    with pytest.raises(UsageError, match="does not work with Aurora DSQL") as caught:
        check_settings({"host": host}, writes=False, read_write=False)
    assert "aurora-dsql-loader" in (caught.value.hint or "")


def test_other_hosts_are_not_taken_for_dsql() -> None:
    """Names that only contain the word."""
    check_settings({"host": "dsql.us-east-1.on.aws.example.com,dsql"}, writes=False, read_write=False)
