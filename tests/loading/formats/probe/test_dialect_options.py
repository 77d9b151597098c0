"""What COPY refuses of a dialect, refused before anything is read."""

from __future__ import annotations

import pytest

from penstock.core.errors import UsageError
from penstock.core.values.dialect import DialectOptions
from penstock.loading.formats.probe.form import validate_options

TEXT_FORBIDDEN = "\\.abcdefghijklmnopqrstuvwxyz0123456789"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (DialectOptions(delimiter="||"), "COPY delimiter must be a single one-byte character"),
        (DialectOptions(delimiter=""), "COPY delimiter must be a single one-byte character"),
        (DialectOptions(delimiter="§"), "COPY delimiter must be a single one-byte character"),
        (DialectOptions(delimiter="\n"), "COPY delimiter cannot be newline or carriage return"),
        (DialectOptions(delimiter="\r"), "COPY delimiter cannot be newline or carriage return"),
        (DialectOptions(null=("a\nb",)), "COPY null representation cannot use newline or carriage return"),
        (DialectOptions(format="csv", quote='""'), "COPY quote must be a single one-byte character"),
        (DialectOptions(quote=""), "COPY quote must be a single one-byte character"),
        (DialectOptions(format="csv", escape=""), "COPY escape must be a single one-byte character"),
        (DialectOptions(format="csv", delimiter='"'), "COPY delimiter and quote must be different"),
        (DialectOptions(quote=",", delimiter=","), "COPY delimiter and quote must be different"),
        (DialectOptions(format="csv", null=('"',)), "CSV quote character must not appear in the NULL specification"),
        (DialectOptions(format="text", quote='"'), "COPY QUOTE requires CSV mode"),
        (DialectOptions(format="tsv", escape="\\"), "COPY ESCAPE requires CSV mode"),
        (
            DialectOptions(delimiter=",", null=("", "a,b")),
            "COPY delimiter character must not appear in the NULL specification",
        ),
        (
            DialectOptions(format="tsv", delimiter="N"),
            "COPY delimiter character must not appear in the NULL specification",
        ),
    ],
)
def test_refused(options: DialectOptions, message: str) -> None:
    """The messages are PostgreSQL's, each with a hint."""
    with pytest.raises(UsageError) as caught:
        validate_options(options)
    assert caught.value.message == message
    assert caught.value.hint


@pytest.mark.parametrize("format_name", ["text", "tsv"])
def test_text_refuses_delimiters_that_a_backslash_gives_a_meaning(format_name: str, subtests: pytest.Subtests) -> None:
    """They are refused for tsv too, which is sent as text."""
    for delimiter in TEXT_FORBIDDEN:
        with subtests.test(delimiter), pytest.raises(UsageError, match="COPY delimiter cannot be"):
            validate_options(DialectOptions(format=format_name, delimiter=delimiter))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "options",
    [
        DialectOptions(),
        DialectOptions(format="csv", delimiter="a"),
        DialectOptions(format="csv", delimiter="\x01", quote="\x02", escape="\\", null=("", "\\N")),
        DialectOptions(format="text", delimiter="|", null=("",)),
        DialectOptions(format="tsv", delimiter="\t", encoding="LATIN1"),
    ],
)
def test_accepted(options: DialectOptions) -> None:
    """What COPY takes passes."""
    validate_options(options)


@pytest.mark.parametrize(
    ("text", "character"),
    [("\\t", "\t"), ("\t", "\t"), ("\\x1f", "\x1f"), ("\\037", "\x1f"), ("\\\\", "\\"), ("\\", "\\"), ("||", "||")],
)
def test_characters_may_be_spelled_as_in_c(text: str, character: str) -> None:
    """What is no spelling comes back as it is."""
    assert DialectOptions(quote=text).quote == character
