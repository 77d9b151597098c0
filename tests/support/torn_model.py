"""Files with stray quotes, and a model of what is rejected of them, by the documented rules, byte by byte."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import random

FIELD_COUNT = 3
PARTS = ["1", "word", ",", ",", ",", '"', '""', "\\", "\n", "\r", "END", "END", '"a,b"', '"aENDb"']


class Part(NamedTuple):
    """A record, or a rejected line: its bytes in the file, and the line that it begins on."""

    start: int
    end: int
    line: int
    is_torn: bool


def make_file(rng: random.Random, line_end: str) -> bytes:
    """Return a header and some lines with quotes and line ends anywhere."""
    lines = ["1,2,3", "END".join(["1,2,3", '4,"5', '6",7']), '1,a"b,3', '1,"2",3', '1,"x"y"', "1,2", '"1","ENDEND",""']
    texts = [rng.choice([rng.choice(lines), "".join(rng.choices(PARTS, k=rng.randint(0, 9)))]) for _ in range(12)]
    text = "".join(f"{text}END" for text in ["a,b,c", *texts[: rng.randint(0, 12)]])
    return (text + rng.choice(["", "1,2,3", '1,"2'])).replace("END", line_end).encode()


def read_record(data: bytes, start: int, line_end: bytes, escape: bytes) -> int | None:
    """Return where a record ends; None if it has no end or a stray line end."""
    in_quote, at, fields = False, start, 1
    while at < len(data):
        byte = data[at : at + 1]
        if in_quote and escape != b'"' and byte == escape and data[at + 1 : at + 2] in (b'"', escape):
            at += 2
            continue
        if byte == b'"':
            in_quote = not in_quote
        elif not in_quote and data.startswith(line_end, at):
            return _check(data, start, at + len(line_end), fields, line_end)
        elif not in_quote and byte in b"\r\n":
            return None
        elif not in_quote and byte == b",":
            fields += 1
        at += 1
    return None if in_quote else _check(data, start, at, fields, line_end)


def _check(data: bytes, start: int, end: int, fields: int, line_end: bytes) -> int | None:
    spans_lines = data[start:end].removesuffix(line_end).count(line_end[-1:]) > 0
    return None if spans_lines and fields != FIELD_COUNT else end


def read_model(data: bytes, line_end: bytes, escape: bytes, *, limit_bytes: int) -> list[Part]:
    """Return the parts of a file, from its header on, by the rules in the documentation."""
    parts, start, line = [], 0, 1
    while start < len(data):
        end = read_record(data, start, line_end, escape)
        is_torn = end is None or end - start > limit_bytes
        if end is None or is_torn:
            marks = [line_end[-1:], b"\n"]
            end = min((at + 1 for mark in marks if (at := data.find(mark, start)) >= 0), default=len(data))
        parts.append(Part(start, end, line, is_torn))
        line += data.count(line_end[-1:], start, end)
        start = end
    return parts
