"""Completes the commands that messages and results suggest, so that they can be typed as they stand.

Other packages write `penstock resume ID`. Without the options of the running command, it would look for the load on
another server or in another ledger.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

# A command that works on the ledger, or on the server alone, and the load that is named behind it.
_COMMAND = re.compile(
    r"\bpenstock (?:(settings restore)|resume|rejects|retry|repair|loads (?:show|forget))\b"
    r"(?: [0-9a-f]{8}(?:-[0-9a-f-]{27})?\b)?(?! --help)"
)


@dataclass(slots=True)
class _Options:
    of_server: str = ""
    of_ledger: str = ""


_options = _Options()


def note_options(*, of_server: str, of_ledger: str) -> None:
    """Keep the options that suggested commands need: those for the server, and the others for the ledger."""
    _options.of_server, _options.of_ledger = of_server, of_ledger


def complete_commands(text: str) -> str:
    """Return a text with the kept options behind each command that needs them.

    >>> note_options(of_server="--to db1", of_ledger="--ledger-schema etl")
    >>> complete_commands("Resume with: penstock resume 1fed2f75.")
    'Resume with: penstock resume 1fed2f75 --to db1 --ledger-schema etl.'
    >>> complete_commands("run penstock settings restore, or see penstock repair --help")
    'run penstock settings restore --to db1, or see penstock repair --help'
    >>> note_options(of_server="", of_ledger="")
    """
    if not (_options.of_server or _options.of_ledger):
        return text

    def complete(command: re.Match[str]) -> str:
        return " ".join(filter(None, [command[0], _options.of_server, "" if command[1] else _options.of_ledger]))

    return _COMMAND.sub(complete, text)
