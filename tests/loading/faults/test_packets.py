"""A connection cut at any packet of a load, from its first look at the server on (`make faults` cuts at all)."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from support.campaign.packets import CutLoad, describe
from support.campaign.plant import Plant
from support.servers import installed

if TYPE_CHECKING:
    from pathlib import Path

    from support.servers import ServerPool

_CUTS = 25


@pytest.mark.part("rest")
@pytest.mark.timeout(600)
@pytest.mark.skipif(18 not in installed(), reason="needs PostgreSQL 18's programs")
def test_a_cut_at_any_packet_is_waited_out(servers: ServerPool, seed: int, tmp_path: Path) -> None:
    """The load ends with 0, its rows are right, and what it had changed is as it was."""
    plant = Plant(servers)
    try:
        load = CutLoad(plant, 18, tmp_path)
        packets = load.learn()
        cuts = [load.cut(packet) for packet in sorted(random.Random(seed).sample(range(1, packets + 1), _CUTS))]
    finally:
        plant.close()
    assert not any(cut.faults for cut in cuts), describe(cuts)
