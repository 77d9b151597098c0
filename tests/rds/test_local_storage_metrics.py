"""CloudWatch's metrics of an instance's local storage, in what watch and its recordings have."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

import pytest

from penstock.core.connect.connection import ConnectionFactory
from penstock.core.errors import AwsError
from penstock.rds.metrics import read_local_storage
from penstock.rds.values import LocalStorageMetrics
from penstock.watch.sampler import AwsFeeds, Sampler
from penstock.watch.view import View, as_object, draw_screen
from penstock.watch.watching import LocalStorageFeed
from support.fake_aws import ACCOUNT, NOW, REGION, FakeAws, instance

if TYPE_CHECKING:
    from collections.abc import Callable

HOST = f"orders.{ACCOUNT}.{REGION}.rds.amazonaws.com"
FOUND = LocalStorageMetrics(
    instance="orders",
    measured_at="2026-11-21T11:58:00+00:00",
    values={"WriteIOPSLocalStorage": 900.0, "WriteThroughputLocalStorage": 7.4e6, "FreeLocalStorage": 3e11},
)


def wait_for(holds: Callable[[], bool]) -> None:
    while not holds():
        time.sleep(0.01)


def test_metrics_of_the_instance_behind_an_endpoint_are_the_newest() -> None:
    aws = FakeAws(
        instances=[instance("orders")],
        metrics={"orders FreeLocalStorage": [9.0, 7.0], "orders ReadLatencyLocalStorage": [0.001]},
    )
    found = read_local_storage(HOST, now=NOW, make_clients=aws.make_clients)
    assert found is not None
    assert (found.instance, found.values) == ("orders", {"ReadLatencyLocalStorage": 0.001, "FreeLocalStorage": 7.0})


def test_instance_without_local_storage_has_none() -> None:
    aws = FakeAws(instances=[instance("orders")])
    assert read_local_storage(HOST, now=NOW, make_clients=aws.make_clients) is None


def test_samples_have_the_metrics_and_a_screen_shows_them(database18: str) -> None:
    feed = LocalStorageFeed(HOST, read=lambda _: FOUND)
    wait_for(lambda: feed.newest() is not None)
    sampler = Sampler(ConnectionFactory(database18), interval_s=1, feeds=AwsFeeds(read_local_storage=feed.newest))
    try:
        view = View.of(sampler.header, [sampler.sample()])
    finally:
        sampler.close()
    assert as_object(view)["local_storage"] == {
        "instance": "orders",
        "measured_at": FOUND.measured_at,
        **FOUND.values,
    }
    lines = [
        "".join(text for text, _ in line) for line in draw_screen(view, width=120, height=50, by_name=False, remark="")
    ]
    assert "local storage (CloudWatch, 2026-11-21T11:58): 900 writes/s 7.40 MB/s, 300 GB free" in lines


@pytest.mark.parametrize("answers", [[None], [AwsError("denied")]])
def test_aws_is_not_asked_again_where_it_has_nothing(answers: list[AwsError | None]) -> None:
    """Nor does a refusal end what is watched."""
    asked = threading.Event()

    def read(_: str) -> None:
        asked.set()
        if answers.pop() is not None:
            raise AwsError("denied")

    feed = LocalStorageFeed(HOST, read=read, every_s=0.0)
    asked.wait()
    assert feed.newest() is None


def test_metrics_are_asked_for_again() -> None:
    asked: list[str] = []

    def read(host: str) -> LocalStorageMetrics | None:
        asked.append(host)
        return FOUND if len(asked) < 3 else None

    LocalStorageFeed(HOST, read=read, every_s=0.0)
    wait_for(lambda: len(asked) == 3)
    assert set(asked) == {HOST}
