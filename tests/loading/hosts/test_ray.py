"""A load by the nodes of a Ray cluster: --ray."""

from __future__ import annotations

import importlib.util
import os
import pickle
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from loading.hosts.conftest import OBJECTS, ROWS_PER_OBJECT

if TYPE_CHECKING:
    from collections.abc import Iterator

    from loading.hosts.conftest import Hosts

HAS_RAY = importlib.util.find_spec("ray") is not None

# Not in what Ray keeps of actors and tasks, nor in its logs.
_SECRET = "hunter2-of-the-load"


class Cluster:
    """The process that has the cluster."""

    def __init__(self, folder: Path) -> None:
        # Ray's sockets are below it, whose paths must be short.
        self.folder = Path(tempfile.mkdtemp(prefix="ray-"))
        with (folder / "ray.log").open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, str(Path(__file__).with_name("ray_nodes.py"))],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env=os.environ | {"RAY_USAGE_STATS_ENABLED": "0", "RAY_TMPDIR": str(self.folder)},
            )
        self.address = self._read()

    def _read(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def remove_node(self) -> None:
        """Remove a node, as by a crash."""
        assert self._process.stdin is not None
        self._process.stdin.write("remove\n")
        self._process.stdin.flush()
        assert self._read() == "removed"

    def close(self) -> None:
        """Shut it down."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()
        shutil.rmtree(self.folder, ignore_errors=True)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """Provide a cluster of three nodes."""
    if not HAS_RAY:
        pytest.skip("needs Ray: pip install ray")
    made = Cluster(tmp_path)
    yield made
    made.close()


@pytest.mark.part("rest")
@pytest.mark.timeout(280)
def test_nodes_of_a_cluster_load_each_row_once(hosts: Hosts, cluster: Cluster) -> None:
    """One of them is removed meanwhile; the command exits with 0, and Ray's logs have no password."""
    secret = {"PGPASSWORD": _SECRET}
    command = hosts.start("host-a", "--ray", cluster.address, "--members", "3", join=False, environment=secret)
    command.await_text("started 3 members", timeout_s=90)
    query = "SELECT count(*) FROM penstock.members"
    hosts.await_count(query, 3, timeout_s=120)
    cluster.remove_node()
    assert hosts.wait(command, timeout_s=150) == [0], command.out
    hosts.check()
    assert f"loaded {OBJECTS * ROWS_PER_OBJECT:,} rows" in command.out
    assert hosts.loads.execute("SELECT count(DISTINCT client) >= 3 FROM penstock.members") == [(True,)]
    logs = [path for path in cluster.folder.rglob("*") if path.is_file()]
    assert len(logs) > 5
    assert not [path for path in logs if _SECRET.encode() in path.read_bytes()]


@pytest.mark.part("rest")
@pytest.mark.timeout(280)
def test_interrupt_ends_the_members_too(hosts: Hosts, cluster: Cluster) -> None:
    """They commit their batches and end; the same command resumes the load."""
    command = hosts.start("host-a", "--ray", cluster.address, "--members", "2", join=False)
    hosts.await_count("SELECT count(*) FROM penstock.members", 3, timeout_s=120)
    command.send(signal.SIGINT)
    assert hosts.wait(command, timeout_s=120) == [130], command.out
    hosts.await_count("SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'penstock%'", 0, timeout_s=30)
    assert hosts.loads.execute("SELECT state FROM penstock.loads") == [("running",)]
    again = hosts.start("host-b")
    assert hosts.wait(again) == [0], again.out
    hosts.check()


def test_an_order_shows_nothing_of_itself() -> None:
    """It may contain a password, and Ray writes the repr of what fails to be pickled."""
    from penstock.api.ray_members import Order
    from penstock.core.values.job import Housekeeping

    secrets = {"access": {"to": _SECRET}, "environment": {"PGPASSWORD": _SECRET}}
    order = Order(job="{}", housekeeping=Housekeeping(), **secrets)
    assert _SECRET not in repr(order)
    values: list[Any] = [order]
    assert _SECRET not in str(values)


def test_an_error_of_a_member_that_lists_more_reaches_the_command() -> None:
    """Ray pickles what a member returns; the command raises it, and exits as a host without Ray does."""
    from penstock.core.errors import LeftOutError
    from penstock.loading.claim.decide import left_out

    error = left_out(["/srv/61.csv"], "8b702d36", host="node-2")
    again = pickle.loads(pickle.dumps(error))  # noqa: S301 (what it has just pickled)
    assert isinstance(again, LeftOutError)
    assert (str(again), again.exit_code, again.load_id) == (str(error), 4, "8b702d36")
