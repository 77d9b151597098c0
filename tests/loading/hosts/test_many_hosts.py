"""Several hosts load one load, by --join: each row once, whoever dies."""

from __future__ import annotations

import json
import signal
from typing import TYPE_CHECKING

import pytest

from loading.hosts.conftest import OBJECTS, ROWS_PER_OBJECT
from support.command import run_process
from support.parts import rest

if TYPE_CHECKING:
    from loading.hosts.conftest import Hosts

_ALL = OBJECTS * ROWS_PER_OBJECT


def test_three_hosts_load_each_row_once(hosts: Hosts) -> None:
    """Each exits with 0, and prints its share and the whole."""
    started = [hosts.start(name) for name in ("host-a", "host-b", "host-c")]
    hosts.await_claims("host-a", "host-b", "host-c")
    assert hosts.wait(*started) == [0, 0, 0], "\n".join(host.out for host in started)
    hosts.check()
    assert all(f"loaded {_ALL:,} rows into" in host.out for host in started)
    rows, objects = zip(*(host.share for host in started), strict=True)
    assert (sum(rows), sum(objects)) == (_ALL, OBJECTS)
    assert min(rows) > 0


@pytest.mark.part("rest")
def test_objects_of_a_killed_member_are_loaded_by_the_others(hosts: Hosts) -> None:
    """Loads show has who loads, and that one has ended."""
    leader = hosts.start("host-a")
    hosts.await_claims("host-a")
    member = hosts.start("host-b")
    hosts.await_claims("host-a", "host-b")
    member.kill()
    assert hosts.wait(leader) == [0], leader.out
    hosts.check()
    assert "member host-b" in leader.out
    ((load_id,),) = hosts.loads.execute("SELECT id::text FROM penstock.loads")
    shown = run_process("loads", "show", load_id, "--to", hosts.loads.conninfo, "--json")
    members = json.loads(shown.out)["members"]
    assert [member["client"].split()[0] for member in members] == ["host-a", "host-b"]
    assert sum(member["rows"] for member in members) == _ALL
    assert "host-b" in run_process("loads", "show", load_id, "--to", hosts.loads.conninfo).out


@pytest.mark.part("rest")
def test_another_member_leads_if_the_leader_is_killed(hosts: Hosts) -> None:
    """The index that it has dropped is rebuilt, and the table is not truncated again."""
    hosts.loads.execute("INSERT INTO t VALUES (-1, 'before')")
    options = ("--mode", "truncate", "--indexes", "rebuild")
    leader = hosts.start("host-a", *options)
    hosts.await_claims("host-a")
    members = [hosts.start("host-b", *options), hosts.start("host-c", *options)]
    hosts.await_claims("host-a", "host-b", "host-c")
    leader.kill()
    assert hosts.wait(*members) == [0, 0], "\n".join(host.out for host in members)
    hosts.check()
    assert hosts.loads.execute("SELECT epoch FROM penstock.loads") == [(2,)]


@pytest.mark.part("rest")
def test_repair_keeps_what_is_dropped_while_members_load_without_a_leader(hosts: Hosts) -> None:
    """The load is running, though the lock that its leader had is free."""
    leader = hosts.start("host-a", "--indexes", "rebuild")
    hosts.await_claims("host-a")
    member = hosts.start("host-b", "--indexes", "rebuild")
    hosts.await_claims("host-a", "host-b")
    # Stopped, it does not lead, and its session has its lock.
    member.send(signal.SIGSTOP)
    leader.kill()
    hosts.await_count(
        "SELECT count(*) FROM penstock.loads AS l JOIN pg_locks AS k ON k.objsubid = 1 AND k.locktype = 'advisory'"
        " AND k.classid = ('x' || substr(l.lock_key, 1, 8))::bit(32)::int8::oid"
        " AND k.objid = ('x' || substr(l.lock_key, 9, 8))::bit(32)::int8::oid",
        0,
        timeout_s=30.0,
    )
    outcome = hosts.loads.repair()
    assert (outcome.rebuilt, len(outcome.held)) == ([], 1)
    member.send(signal.SIGCONT)
    assert hosts.wait(member) == [0], member.out
    hosts.check()


@pytest.mark.part("rest")
def test_stopped_member_whose_objects_were_taken_writes_nothing_more(hosts: Hosts) -> None:
    """Its open transactions are ended as the leader says; it joins again."""
    leader = hosts.start("host-a")
    hosts.await_claims("host-a")
    stopped = hosts.start("host-b", "--sessions", "2")
    hosts.await_claims("host-a", "host-b")
    stopped.send(signal.SIGSTOP)
    # As the server does with a host that does not answer.
    hosts.loads.execute(
        "SELECT pg_terminate_backend(a.pid) FROM pg_stat_activity AS a, penstock.members AS m"
        " JOIN pg_locks AS k ON k.objsubid = 1 AND k.classid = ('x' || substr(m.lock_key, 1, 8))::bit(32)::int8::oid"
        " WHERE k.pid = a.pid AND m.client LIKE 'host-b%'"
    )
    hosts.await_ended("host-b", told_by=leader)
    stopped.send(signal.SIGCONT)
    assert hosts.wait(leader, stopped) == [0, 0], leader.out + stopped.out
    hosts.check()


@pytest.mark.part("rest")
def test_another_file_under_the_same_path_is_refused_by_name_of_host(hosts: Hosts) -> None:
    """Before a byte of it is read; the others load everything."""
    leader = hosts.start("host-a")
    hosts.await_claims("host-a")
    other = hosts.files.with_name("other")
    other.mkdir()
    for path in hosts.files.iterdir():
        (other / path.name).write_text(path.read_text())
    member = hosts.start("host-b", before=f"mount --bind {other} {hosts.files}")
    assert member.wait() == 6, member.out
    assert "Host host-b reads another version of it." in member.out
    assert hosts.wait(leader) == [0], leader.out
    hosts.check()


@pytest.mark.part("rest")
def test_member_that_fails_leaves_its_objects_to_the_others(hosts: Hosts) -> None:
    """A file that vanishes on its host is an error of that host alone."""
    leader = hosts.start("host-a")
    hosts.await_claims("host-a")
    member = hosts.start(
        "host-b",
        before=f"mount -t tmpfs none /mnt && cp -a {hosts.files} /mnt/ && mount --bind /mnt/files {hosts.files}",
    )
    assert member.wait() == 6, member.out
    assert hosts.wait(leader) == [0], leader.out
    hosts.check()


@pytest.mark.part("rest")
def test_process_without_join_waits_and_finds_everything_loaded(hosts: Hosts) -> None:
    """As beside any other process of the load."""
    leader = hosts.start("host-a")
    hosts.await_claims("host-a")
    alone = hosts.start("host-b", join=False)
    alone.await_text("waiting for another process")
    assert hosts.wait(leader, alone) == [0, 0], alone.out
    assert "already loaded" in alone.out
    hosts.check()


@pytest.mark.part("rest")
def test_process_without_join_ends_all_members_when_it_takes_over(hosts: Hosts) -> None:
    """It loads what is left alone; a member that is shut out joins no load by itself, and finds it complete."""
    leader = hosts.start("host-a")
    hosts.await_claims("host-a")
    member = hosts.start("host-b")
    hosts.await_claims("host-a", "host-b")
    member.send(signal.SIGSTOP)
    leader.kill()
    alone = hosts.start("host-c", join=False)
    hosts.await_lead("host-c", told_by=alone)
    member.send(signal.SIGCONT)
    assert hosts.wait(alone, member) == [0, 0], alone.out + member.out
    hosts.check()


@pytest.mark.part("rest")
def test_members_that_wait_do_not_begin_the_load_again(hosts: Hosts) -> None:
    """Of a mode that loads files whatever was loaded before: it has waited for the load that it saw."""
    options = ("--mode", "truncate", "--indexes", "rebuild")
    started = [hosts.start(name, *options) for name in ("host-a", "host-b", "host-c")]
    assert hosts.wait(*started) == [0, 0, 0], "\n".join(host.out for host in started)
    assert hosts.loads.execute("SELECT count(*) FROM penstock.loads") == [(1,)]
    hosts.check()


@pytest.mark.part("rest")
def test_table_is_created_once_by_hosts_that_begin_together(hosts: Hosts) -> None:
    """By the one that leads; the others plan again."""
    hosts.loads.execute("DROP TABLE t")
    started = [hosts.start(name, "--create") for name in ("host-a", "host-b", "host-c")]
    assert hosts.wait(*started) == [0, 0, 0], "\n".join(host.out for host in started)
    assert hosts.loads.execute("SELECT count(*), count(DISTINCT id) FROM t") == [(_ALL, _ALL)]


@pytest.mark.part("rest")
@pytest.mark.parametrize(
    "options",
    [
        ("--mode", "upsert", "--key", "id"),
        rest(("--mode", "replace")),
        rest(("--on-error", "reject")),
    ],
    ids=["upsert", "replace", "reject"],
)
def test_modes_and_rejects_work_with_several_hosts(hosts: Hosts, options: tuple[str, ...]) -> None:
    """The rows of all hosts go to one staging table, or to one new table."""
    hosts.loads.execute("DROP INDEX t_id; CREATE UNIQUE INDEX t_id ON t (id); INSERT INTO t VALUES (5, 'old')")
    if "reject" in options:
        hosts.loads.execute("DELETE FROM t")
    started = [hosts.start(name, *options) for name in ("host-a", "host-b")]
    assert hosts.wait(*started) == [0, 0], "\n".join(host.out for host in started)
    hosts.check()
    assert hosts.loads.execute("SELECT note FROM t WHERE id = 5") == [(f"note {5:0200}",)]


@pytest.mark.part("rest")
def test_files_that_a_new_leader_does_not_see_are_loaded_by_who_has_claimed_them(hosts: Hosts) -> None:
    """The leader is killed, and the host that leads then lists but one file and one that is not the load's."""
    leader = hosts.start("host-a")
    hosts.await_claims("host-a")
    member = hosts.start("host-b")
    hosts.await_claims("host-a", "host-b")
    leader.kill()
    other = hosts.files.with_name("other")
    other.mkdir()
    (other / "part_9.csv").write_text("id,note\n-9,nine\n")
    (other / "part_0.csv").touch()
    seen = f"mount --bind {hosts.files}/part_0.csv {other}/part_0.csv && mount --rbind {other} {hosts.files}"
    second = hosts.start("host-c", before=seen)
    hosts.await_lead("host-c", told_by=second)
    assert hosts.wait(second, member) == [4, 0], second.out + member.out
    assert "part_9.csv" in second.out
    hosts.check()
    assert hosts.loads.execute("SELECT count(*) FROM penstock.objects") == [(OBJECTS,)]


@pytest.mark.part("rest")
@pytest.mark.parametrize("option", ["--quiet", "--json"])
def test_host_that_lists_more_files_says_so_however_it_prints(hosts: Hosts, option: str) -> None:
    """It exits as an incomplete load does, so that a scheduler runs it again."""
    leader = hosts.start("host-a")
    hosts.await_claims("host-a")
    (hosts.files / "part_9.csv").write_text("id,note\n-9,nine\n")
    member = hosts.start("host-b", option)
    hosts.await_claims("host-a", "host-b")
    assert hosts.wait(leader, member) == [0, 4], member.out
    hosts.check()
    if option == "--json":
        (line,) = (line for line in member.out.splitlines() if line.startswith("{"))
        assert "part_9.csv" in json.loads(line)["error"]["message"]
    assert "part_9.csv" in member.out
    again = hosts.start("host-b", option)
    assert hosts.wait(again) == [0], again.out
    assert hosts.loads.execute("SELECT count(*) FROM t WHERE id = -9") == [(1,)]
