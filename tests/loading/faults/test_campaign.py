"""The seeded fault campaign, in short (`make faults` has it long), and that it notices what must not happen."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from support.campaign import scenario as campaign
from support.campaign.faults import KINDS
from support.campaign.plant import Plant
from support.campaign.record import add_up, read_record
from support.clock import HAS_FAKETIME
from support.parts import rest
from support.servers import installed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.servers import ServerPool

# Enough for each kind of fault to be met.
_MANY = 200

_TESTS = Path(__file__).parents[2]

pytestmark = pytest.mark.skipif(18 not in installed(), reason="needs PostgreSQL 18's programs")


@pytest.fixture
def plant(servers: ServerPool) -> Iterator[Plant]:
    """Provide what a campaign breaks."""
    plant = Plant(servers)
    yield plant
    plant.close()


@pytest.mark.part("rest")
@pytest.mark.timeout(900)
@pytest.mark.parametrize("points", [100, _MANY])
def test_no_fault_loses_or_repeats_a_row(seed: int, tmp_path: Path, points: int) -> None:
    """Of all kinds but the small disk, for which it takes root; the command ends with 0 where all loads held."""
    record = tmp_path / "faults.jsonl"
    argv = [sys.executable, "-m", "support.campaign", f"--points={points}", f"--seed={seed}", f"--record={record}"]
    played = subprocess.run(
        argv, env=os.environ | {"PYTHONPATH": str(_TESTS)}, capture_output=True, text=True, check=False
    )
    assert played.returncode == 0, played.stdout + played.stderr
    lines = read_record(record)
    totals = add_up(lines)
    assert totals.points >= points
    assert (totals.lost, totals.repeated, totals.false_successes) == (0, 0, 0)
    assert min(totals.crashes_with_loss, totals.takeovers, totals.promotions) > 0
    rare = {"disk", "interrupt", "interrupt twice", *(() if HAS_FAKETIME else ("clock",))}
    met = {hit[0] for line in lines for hit in line["hits"]}
    assert points < _MANY or met >= set(KINDS) - rare
    assert record.with_suffix(".md").read_text().startswith("# Seeded fault campaign")


# One of a row's copies, if it has two.
_ONE_ROW = "ctid = (SELECT min(ctid) FROM {} WHERE id = 1)"


@pytest.mark.parametrize(
    ("damage", "told"),
    [
        rest(f"DELETE FROM {{}} WHERE {_ONE_ROW}", "1 rows lost, 0 rows repeated"),
        rest(f"INSERT INTO {{}} SELECT * FROM {{}} WHERE {_ONE_ROW}", "0 rows lost, 1 rows repeated"),
        rest(f"UPDATE {{}} SET note = 'other' WHERE {_ONE_ROW}", "1 rows lost, 1 rows repeated"),
        ("DELETE FROM penstock.ranges", "committed rows vanished"),
    ],
    ids=["lost", "repeated", "changed", "ledger"],
)
def test_campaign_notices_damage(
    plant: Plant, seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: str, told: str
) -> None:
    """Done by hand, after a load's last fault and before it is held against its files."""
    finish = campaign.finish

    def finish_and_damage(run: campaign.Run) -> None:
        finish(run)
        run.look()
        run.observer.execute(damage.replace("{}", run.table))

    monkeypatch.setattr(campaign, "finish", finish_and_damage)
    # A theme without servers of its own.
    scenario = campaign.draw_scenario(seed - seed % 28 + 2, majors=(18,), can_mount=False)
    with pytest.raises(campaign.Broken, match=told):
        campaign.play(scenario, plant, tmp_path)


def test_seeds_meet_several_hosts_imports_and_each_form() -> None:
    """Also in the mode and the form that a theme leaves open; the summary counts each of them."""
    drawn = [campaign.draw_scenario(seed, majors=(18,), can_mount=False) for seed in range(400)]
    assert {"hosts", "import", "sync", "retry"} <= {scenario.theme for scenario in drawn}
    assert {"jsonl", "parquet", "arrow"} <= set(campaign.FORMS)
    hosts = [scenario for scenario in drawn if scenario.theme == "hosts"]
    assert any(scenario.has_binary for scenario in hosts)
    assert all(scenario.forms == campaign.FORMS for scenario in hosts)
