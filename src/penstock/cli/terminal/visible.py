r"""Text of others (names, data, what a server says) safe to print: no terminal obeys it, it fakes no line. Pure.

Everything that is printed to people goes through here: by output.py, and before it is drawn (bars, tables, doctor).
"""

from __future__ import annotations

# C0 but tab, DEL and C1; and what turns the direction of writing, by which text is shown in another order.
_CONTROLS = [*range(0x20), *range(0x7F, 0xA0)]
_TURNS = [*range(0x202A, 0x202F), *range(0x2066, 0x206A)]
_ON_ONE_LINE = {code: f"\\x{code:02x}" for code in _CONTROLS} | {code: f"\\u{code:04x}" for code in _TURNS}
_ON_ONE_LINE |= {ord("\n"): "\\n", ord("\r"): "\\r"}
del _ON_ONE_LINE[ord("\t")]
_ON_LINES = {code: text for code, text in _ON_ONE_LINE.items() if code != ord("\n")}


def visible(text: str) -> str:
    r"""Return a text on one line, with escapes for what a terminal would obey.

    >>> print(visible("a\x1b[31m b\nc\x9b\u202e"))
    a\x1b[31m b\nc\x9b\u202e
    """
    return text if text.isprintable() else text.translate(_ON_ONE_LINE)


def visible_lines(text: str) -> str:
    r"""Return a text of several lines; those after the first stand in, so that none looks like one of penstock's.

    >>> print(visible_lines("could not connect\nerror: connection refused\x07"))
    could not connect
        error: connection refused\x07
    """
    return text if text.isprintable() else text.translate(_ON_LINES).replace("\n", "\n    ")
