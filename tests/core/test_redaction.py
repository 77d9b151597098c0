"""What looks like a secret is hidden in messages, and nothing else is."""

from __future__ import annotations

import pytest

from penstock.core.words import hide_secrets


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("postgres:ann:word@h/db", "postgres:***@h/db"),
        ("htps:/me:word@host/x", "htps:/***@host/x"),
        ("https://me:word@host/x@y", "https://***@host/x@y"),
        ("host=h password='two \\' words' user=ann", "host=h password=*** user=ann"),
        ("https://h/a?sp=r&sig=ab%2B&se=1", "https://h/a?sp=r&sig=***&se=1"),
        ("https://h/a?temp_url_sig=ab&api_key=x", "https://h/a?temp_url_sig=***&api_key=***"),
        (
            "h:5432/?Action=connect&X-Amz-Security-Token=x&DBUser=u",
            "h:5432/?Action=connect&X-Amz-Security-Token=***&DBUser=u",
        ),
        ('Key (token)=(abc) of "a@b.csv"', 'Key (token)=(abc) of "a@b.csv"'),
        ('s3://bucket/day@12/f.csv line 3, column "password".', 's3://bucket/day@12/f.csv line 3, column "password".'),
    ],
)
def test_secrets_are_hidden(text: str, shown: str) -> None:
    """User information of URLs, and the values of parameters that are named for a secret."""
    assert hide_secrets(text) == shown
