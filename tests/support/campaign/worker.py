"""Plays scenarios for a campaign: seeds come on standard input, one a line; results go to standard output as JSON."""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

from support.campaign.plant import Plant
from support.campaign.record import describe_played
from support.campaign.scenario import FORMS, Broken, draw_scenario, play
from support.servers import installed, server_pool

# Most on the newest, some on an older one.
_MAJORS = (18, 18, 19, 16)


def main() -> None:
    """Play what is asked for until standard input ends; arguments are the form of all files, and the theme, or ''."""
    form, theme = (*sys.argv[1:], "", "")[:2]
    forms = (form,) if form else FORMS
    majors = tuple(major for major in _MAJORS if major in installed())
    folder = Path(tempfile.mkdtemp(prefix="penstock-campaign-"))
    with server_pool() as pool:
        plant = Plant(pool)
        try:
            for line in sys.stdin:
                scenario = draw_scenario(
                    int(line), majors=majors, can_mount=plant.can_mount, forms=forms, theme=theme or None
                )
                try:
                    result = describe_played(play(scenario, plant, folder))
                except Broken as broken:
                    result = {"seed": scenario.seed, "broken": str(broken)}
                print(json.dumps(result), flush=True)
        finally:
            plant.close()
    if not any(folder.iterdir()):
        folder.rmdir()


if __name__ == "__main__":
    main()
