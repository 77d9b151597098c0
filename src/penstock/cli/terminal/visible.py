r"""Makes text from outside (names, data, a server's messages) safe to print on a terminal. Pure.

The text then cannot control the terminal or look like a line of penstock's. All text for people is made safe: in
output.py, or before it is drawn (bars, tables, doctor).
"""

from __future__ import annotations

# The control characters (C0 except tab, DEL, C1), and the characters that change the direction of text and so its
# order.
_CONTROLS = [*range(0x20), *range(0x7F, 0xA0)]
_TURNS = [*range(0x202A, 0x202F), *range(0x2066, 0x206A)]
_ON_ONE_LINE = {code: f"\\x{code:02x}" for code in _CONTROLS} | {code: f"\\u{code:04x}" for code in _TURNS}
_ON_ONE_LINE |= {ord("\n"): "\\n", ord("\r"): "\\r"}
del _ON_ONE_LINE[ord("\t")]
_ON_LINES = {code: text for code, text in _ON_ONE_LINE.items() if code != ord("\n")}


def visible(text: str) -> str:
    r"""Return a text on one line, with escapes for characters that control a terminal.

    >>> print(visible("a\x1b[31m b\nc\x9b\u202e"))
    a\x1b[31m b\nc\x9b\u202e
    """
    return text if text.isprintable() else text.translate(_ON_ONE_LINE)


def visible_lines(text: str) -> str:
    r"""Return a text of several lines. Lines after the first are indented, so that none looks like penstock's own.

    >>> print(visible_lines("could not connect\nerror: connection refused\x07"))
    could not connect
        error: connection refused\x07
    """
    return text if text.isprintable() else text.translate(_ON_LINES).replace("\n", "\n    ")
