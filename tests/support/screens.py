"""Compares the screens in docs/doctor.md with the real output; PENSTOCK_WRITE_DOCS=1 writes them again."""

from __future__ import annotations

import os
import re
from pathlib import Path

DOCUMENT = Path(__file__).parents[2] / "docs" / "doctor.md"

# What differs from machine to machine, in the order in which it is masked.
MASKS = (
    (r"host=\S+( port=\d+)?", "HOST"),
    (r"PostgreSQL \d+\w*(\.\d+)?( \(Debian [^)]*\))?", "PostgreSQL N"),
    (r"standby of \S+", "standby of HOST,"),
    (r"backend -?\d+", "backend N"),
    (r"\d[\d.,]* (B|kB|MB|GB|TB|GiB|MiB)\b", "SIZE"),
    (r"\(\d[\d.]* s\)", "(N s)"),
    (r" on \S+, SIZE of SIZE free", " on DISK, SIZE of SIZE free"),
    (r"(ahead of|behind) this host's", "from this host's"),
    (r"\d[\d.,]*", "N"),
)

# The addresses in the document's commands.
ADDRESSES = {"ordinary": "db1 port=5432", "standby": "db2 port=5432", "pooler": "db1 port=6432"}

# What a screen of the document begins with if it leaves out what the server is.
_LEFT_OUT = "...\n\n"

# Where RDS's name is not known to any resolver, it is reached by an address.
_DIALLED = re.compile(r"(host=\S+\.rds\.amazonaws\.com) hostaddr=\S+ port=\d+")


def mask(screen: str) -> str:
    """Return a screen without the parts that differ, on one line, because line breaks depend on these parts too.

    Disks are one or several, and nearly full or not; windows are near or not.
    """
    text = " ".join(screen.split())
    for pattern, word in MASKS:
        text = re.sub(pattern, word, text)
    text = re.sub(r"memory; .*? (published|table|refusal|warning|note|ok) ", r"memory; DISKS \1 ", text)
    text = re.sub(r"note windows .*? UTC, (in|for another) N \w+( N \w+)? ", "", text)
    return re.sub(r"warning disk\S+ .*? (?=warning|note|ok)", "", text)


def find_transcript(name: str) -> re.Match[str]:
    """Return a transcript of the document: its command, if it has one, and its screen."""
    pattern = rf"(<!-- transcript: {name} -->\n```text\n)(\$ [^\n]*\n)?(.*?)(\n?```)"
    match = re.search(pattern, DOCUMENT.read_text(encoding="utf-8"), re.DOTALL)
    assert match is not None, f"docs/doctor.md has no transcript {name}"
    return match


def rename(screen: str, name: str) -> str:
    """Return a screen with addresses as people have them in place of a test's."""
    screen = re.sub(r"(address .*)\n +(user=\S+)", r"\1 \2", screen)
    if name == "embedded":
        return re.sub(r"host=\S+", "host=/home/ann/.local/share/penstock/server-18/run", screen)
    screen = re.sub(r"standby of [^\s,]+", "standby of db1", screen)
    screen = re.sub(r"host=/\S+ port=\d+\s+\.\.\.", "host=db1 port=5432 ...", screen)
    if name not in ADDRESSES:
        return screen
    return re.sub(r"host=\S+ port=\d+ dbname", f"host={ADDRESSES[name]} dbname", screen)


def hold(name: str, shown: str) -> None:
    """Compare a screen with the document's, or write it there."""
    match = find_transcript(name)
    shown = _DIALLED.sub(r"\1 port=5432", shown)
    if match[3].startswith(_LEFT_OUT):
        shown = _LEFT_OUT + shown.partition("\n\n")[2]
    if os.environ.get("PENSTOCK_WRITE_DOCS"):
        text = DOCUMENT.read_text(encoding="utf-8")
        written = f"{match[1]}{match[2] or ''}{rename(shown.rstrip(), name)}\n```"
        DOCUMENT.write_text(text[: match.start()] + written + text[match.end() :], encoding="utf-8")
        return
    assert mask(match[3]) == mask(shown)
