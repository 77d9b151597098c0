"""Which storage carries a workload, against cases computed by hand, the article's among them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from penstock.core.units import MIB
from penstock.diagnose.uses import Demand, WorkloadIo, measure_demand, simulate
from penstock.rds.values import EbsLimits, Storage
from penstock.rds.volumes import find_volume_limits
from penstock.storage.report import modify_command, propose, stop_growth_command

if TYPE_CHECKING:
    from penstock.core.values.device import VolumeLimits

# A db.r6g.2xlarge.
EBS = EbsLimits(baseline_mb_per_s=296.875, baseline_iops=12_000, maximum_mb_per_s=593.75, maximum_iops=20_000)


def stored(kind: str, size_gib: int, *, iops: int | None = None, mib: int | None = None) -> Storage:
    return Storage(type=kind, size_gib=size_gib, iops=iops, throughput_mib_per_s=mib, ceiling_gib=None, free_bytes=None)


def limits_of(storage: Storage, ebs: EbsLimits | None = None) -> VolumeLimits:
    found = find_volume_limits(storage, ebs)
    assert found is not None
    return found


def worked(
    seconds: int, iops: float, *, size: int = 16_384, queue: float | None = 2048, cpu: float | None = None
) -> list[WorkloadIo]:
    """Return seconds in which a volume did `iops` I/Os of `size` bytes each."""
    use = WorkloadIo(elapsed_s=1.0, ios=iops, moved_bytes=iops * size, queue=queue, cpu_share=cpu)
    return [use] * seconds


GP2 = stored("gp2", 250)


def article(cpu: float | None, balance_share: float | None = 0.0) -> Demand:
    """Return the article's load of one file: 345 s on gp2 of 250 GiB, at its 750 IOPS."""
    return measure_demand(worked(345, 750, cpu=cpu), limits_of(GP2), balance_share)


def test_the_articles_load_with_a_spent_bucket_is_limited_by_iops() -> None:
    """258,750 I/Os at 750 a second; with processors that are busy for a sixth of the time it can do 4,500 a second."""
    found = article(1 / 6)
    assert (found.limit, found.limited_s) == ("volume-iops", 345)
    assert found.most_iops == pytest.approx(4500)


def test_the_articles_volume_of_1500_gib_carries_its_load() -> None:
    """3 x 1,500 = 4,500 IOPS on four stripes, and 258,750 / 4,500 = 57.5 s; the article measured about 62 s."""
    (gp2,) = (each for each in propose(GP2, article(1 / 6), None) if each.storage.type == "gp2")
    assert (gp2.storage.size_gib, gp2.limits.iops) == (1500, 4500)
    assert gp2.copies
    assert gp2.elapsed_s == pytest.approx(57.5)
    assert gp2.price == pytest.approx(6.0)


def test_ten_thousand_provisioned_iops_carry_the_articles_load() -> None:
    """Processors that are busy for 7.5 % of the time can do 750 / 0.075 = 10,000 a second: 25.875 s."""
    found = {each.storage.type: each for each in propose(GP2, article(0.075), None)}
    assert found["io1"].storage == stored("io1", 250, iops=10_000)
    assert found["io1"].elapsed_s == pytest.approx(25.875)
    assert found["gp3"].storage == stored("gp3", 400, iops=12_000, mib=500)
    assert found["gp2"].storage.size_gib == 3334


def test_the_smallest_change_comes_first() -> None:
    """First what copies no data, then what grows least, then what costs least."""
    found = [(each.storage.type, each.copies) for each in propose(GP2, article(1 / 6), None)]
    assert found == [("io1", False), ("io2", False), ("gp3", True), ("gp2", True)]


def test_a_full_bucket_does_not_explain_the_articles_load() -> None:
    """It allows 3,000 IOPS for 2,400 s, and the load did 750 for 345 s: no other storage is proposed."""
    found = article(1 / 6, 1.0)
    assert found.limit is None
    assert propose(GP2, found, None) == []


@pytest.mark.parametrize(("iops", "queue", "expected"), [(750, 34, 0.0), (400, 34, 1.0), (750, 0.5, 1.0)])
def test_an_unknown_balance_was_spent_if_requests_waited_at_the_baseline(
    iops: float, queue: float, expected: float
) -> None:
    """Otherwise it was full."""
    assert measure_demand(worked(345, iops, queue=queue), limits_of(GP2), None).balance_share == expected


@pytest.mark.parametrize(
    ("uses", "expected"),
    [
        (worked(60, 3000), "volume-iops"),
        # 125 MiB/s in requests of 64 KiB are 2,000 a second.
        (worked(60, 2000, size=65_536), "volume-throughput"),
        (worked(60, 1500), None),
        (worked(60, 3000, queue=0.3), None),
        (worked(60, 3000, queue=None), "volume-iops"),
        # Five of 60 seconds are too few.
        ([*worked(55, 100), *worked(5, 3000)], None),
    ],
)
def test_the_limit_is_that_of_the_volume_for_a_tenth_of_the_time(uses: list[WorkloadIo], expected: str | None) -> None:
    """With requests that wait, as far as their number is known."""
    assert measure_demand(uses, limits_of(stored("gp3", 100)), None).limit == expected


def test_no_volume_helps_at_the_limit_of_the_instance() -> None:
    """A db.r6g.2xlarge sustains 12,000 IOPS."""
    present = stored("io1", 500, iops=20_000)
    found = measure_demand(worked(60, 12_000), limits_of(present, EBS), None)
    assert found.limit == "instance-limit"
    assert propose(present, found, EBS) == []


def test_a_demand_above_the_instances_limit_is_proposed_for_what_the_instance_lets_through() -> None:
    """The processors could do 60,000 a second, and the instance 12,000: 45,000 I/Os take 3.75 s."""
    demand = measure_demand(worked(60, 750, cpu=0.0125), limits_of(GP2, EBS), 0.0)
    found = {each.storage.type: each for each in propose(GP2, demand, EBS)}
    assert found["io1"].elapsed_s == pytest.approx(3.75)
    assert found["gp3"].storage.iops == 12_000


def test_a_part_that_was_not_limited_takes_as_long_on_any_storage() -> None:
    """60 s at 750 IOPS, which take 10 s at 4,500, then 60 s at 100."""
    demand = measure_demand([*worked(60, 750, cpu=1 / 6), *worked(60, 100, cpu=0.9)], limits_of(GP2), 0.0)
    assert simulate(demand.uses, limits_of(stored("gp2", 1500)), 0.0) == pytest.approx(70)


def test_the_bucket_of_a_candidate_is_simulated() -> None:
    """Half full, gp2 of 250 GiB does 3,000 a second until 2,700,000 are spent at 2,250 a second: 1,200 s."""
    uses = worked(10, 400_000)
    # 1,200 s x 3,000 = 3,600,000 I/Os, and the other 400,000 at 750 a second.
    assert simulate(uses, limits_of(GP2), 0.5) == pytest.approx(1200 + 400_000 / 750)


def test_iops_and_size_grow_by_a_tenth_or_more() -> None:
    """RDS refuses less; 1,000 to 1,001 becomes 2,000 by the step, and 10,000 to 10,527 becomes 11,000."""
    present = stored("io1", 300, iops=10_000)
    demand = measure_demand(worked(60, 10_000, size=8192, cpu=0.95), limits_of(present), None)
    (io1,) = (each for each in propose(present, demand, None) if each.storage.type == "io1")
    assert io1.storage == stored("io1", 300, iops=11_000)


def test_storage_that_gains_a_hundredth_is_not_worth_its_price() -> None:
    """All processors are busy at the volume's limit: they are the next one."""
    demand = measure_demand(worked(60, 750, cpu=0.99), limits_of(GP2), 0.0)
    assert (demand.limit, propose(GP2, demand, None)) == ("volume-iops", [])


def test_storage_never_becomes_smaller() -> None:
    """RDS cannot do that."""
    present = stored("gp2", 500)
    demand = measure_demand(worked(60, 1500, cpu=0.5), limits_of(present), 0.0)
    found = propose(present, demand, None)
    assert found
    assert min(each.storage.size_gib or 0 for each in found) >= 500


def test_commands_name_what_changes() -> None:
    """gp3 below 400 GiB takes no IOPS, and a limit of the allocated size turns autoscaling off."""
    start = "aws rds modify-db-instance --region eu-west-1 --db-instance-identifier orders"
    end = "--apply-immediately"
    gp3 = stored("gp3", 400, iops=12_000, mib=500)
    assert modify_command("orders", "eu-west-1", GP2, gp3) == (
        f"{start} --storage-type gp3 --allocated-storage 400 --iops 12000 --storage-throughput 500 {end}"
    )
    assert modify_command("orders", "eu-west-1", GP2, stored("gp2", 1500)) == f"{start} --allocated-storage 1500 {end}"
    assert stop_growth_command("orders", "eu-west-1", gp3) == f"{start} --max-allocated-storage 400 {end}"


def test_small_storage_is_moved_to_gp3_of_its_size() -> None:
    """100 GiB of gp2 have 300 IOPS, gp3 of any size 3,000; no data is copied, and the price is the same."""
    present = stored("gp2", 100)
    first = propose(present, measure_demand(worked(60, 300, cpu=0.2), limits_of(present), 0.0), None)[0]
    assert (first.storage, first.copies, first.price) == (stored("gp3", 100), False, 1.0)
    assert first.limits.bytes_per_s == 125 * MIB


def test_the_present_storage_is_no_candidate() -> None:
    """At nine tenths of its IOPS the same storage could do a little more, which is no change."""
    present = stored("gp3", 400, iops=12_000, mib=500)
    demand = measure_demand(worked(60, 11_000, cpu=0.92), limits_of(present), None)
    assert demand.limit == "volume-iops"
    assert present not in [each.storage for each in propose(present, demand, None)]


def test_the_shorter_latency_of_io2_lets_a_short_queue_do_more() -> None:
    """Five requests in flight do 5,000 a second if each takes 1 ms, and 10,000 if it takes 0.5 ms."""
    demand = measure_demand(worked(60, 750, queue=5), limits_of(GP2), 0.0)
    found = {each.storage.type: each for each in propose(GP2, demand, None)}
    assert (demand.most_iops, found["io1"].storage.iops, found["io2"].storage.iops) == (5000, 5000, 10_000)
    assert found["io2"].elapsed_s == pytest.approx(found["io1"].elapsed_s / 2)


def test_a_workload_of_faster_storage_is_held_against_the_named_one() -> None:
    """3,000 I/Os a second for 60 s, with a short queue, take 240 s at 750: it needs 3,000, and takes 60 s with them."""
    demand = measure_demand(worked(60, 3000, queue=0.5, cpu=0.2), limits_of(GP2), 0.0)
    assert (demand.limit, demand.is_faster, demand.most_iops) == ("volume-iops", True, 3000)
    assert demand.here_s == pytest.approx(240)
    assert {each.elapsed_s for each in propose(GP2, demand, None)} == {60}
