"""A host whose network is gone: no packet says so, and the server finds out by its keepalives."""

from __future__ import annotations

import os
import subprocess
import time
from typing import TYPE_CHECKING

import pytest
from psycopg.conninfo import make_conninfo

from loading.hosts.conftest import SETUP, Hosts
from penstock.embedded.users import is_root
from support.loads import Loads

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from penstock.embedded.server import EmbeddedServer

# What is said in docs/hosts.md.
_PROMISED_S = 90.0

_SERVER, _CLIENT = "10.213.7.1", "10.213.7.2"


def _run(*argv: str) -> None:
    subprocess.run(argv, check=True, capture_output=True)


@pytest.fixture
def network() -> Iterator[tuple[str, str]]:
    """Provide a network namespace, and the name of the link to it."""
    name = f"penstock{os.getpid()}"
    link = f"ps{os.getpid() % 100000}"
    if not is_root() or subprocess.run(["ip", "netns", "add", name], capture_output=True, check=False).returncode:
        pytest.skip("needs root and the right to make network namespaces")
    try:
        _run("ip", "link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", name)
        _run("ip", "address", "add", f"{_SERVER}/24", "dev", link)
        _run("ip", "link", "set", link, "up")
        _run("ip", "-n", name, "address", "add", f"{_CLIENT}/24", "dev", "eth0")
        _run("ip", "-n", name, "link", "set", "eth0", "up")
        yield name, link
    finally:
        _run("ip", "netns", "delete", name)


@pytest.mark.part("rest")
@pytest.mark.timeout(240)
def test_host_whose_link_is_down_is_taken_over_in_time(
    network: tuple[str, str], new_server: Callable[..., EmbeddedServer], tmp_path: Path
) -> None:
    """Its objects are loaded by the other host, each row once."""
    namespace, link = network
    server = new_server(18, listen_addresses="*")
    server.ensure_running()
    with (server.data_dir / "pg_hba.conf").open("a") as hba:
        hba.write(f"host all all {_CLIENT}/32 trust\n")
    loads = Loads(server.conninfo(), setup=f"SELECT pg_reload_conf(); {SETUP}")
    port = loads.execute("SHOW port")[0][0]
    hosts = Hosts(loads, tmp_path, server.spec.files.socket_dir / f".s.PGSQL.{port}")
    try:
        leader = hosts.start("host-a")
        hosts.await_claims("host-a")
        far = make_conninfo(loads.conninfo, host=_SERVER, port=port, sslmode="disable")
        hosts.start("host-b", to=far, inside=["ip", "netns", "exec", namespace])
        hosts.await_claims("host-a", "host-b")
        _run("ip", "link", "set", link, "down")
        down_at = time.time()
        hosts.hurry()
        assert leader.wait(_PROMISED_S + 60) == 0, leader.out
        hosts.check()
        ((ended_s,),) = loads.execute(
            f"SELECT extract(epoch FROM ended_at - to_timestamp({down_at}))::float8 FROM penstock.members"
            " WHERE client LIKE 'host-b %'"
        )
        assert ended_s < _PROMISED_S
    finally:
        hosts.close()
