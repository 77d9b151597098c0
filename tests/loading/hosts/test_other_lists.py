"""Hosts of one load whose sources list differently: a stale listing, a file that arrives, one that is gone."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from penstock.core.connect.connection import ConnectionFactory
from penstock.core.errors import DataError, LeftOutError, PenstockError, SourceError, TargetError
from penstock.core.tuning import BatchPlan, LoadTuning
from penstock.core.values.job import Housekeeping, LoadJob, LoadRules
from penstock.loading.loader import Loader
from support.loads import ChoppedSources, Loads
from support.modes import Killed, mode_target
from support.parts import rest

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator
    from pathlib import Path

    from penstock.core.values.job import TargetJob
    from penstock.core.values.source import SourceObject
    from penstock.loading.values.outcome import LoadOutcome

FILES = 6
ROWS = 200
# Small enough that a file has several of each.
PIECE_BYTES = 400
BATCH_BYTES = 900
_PATIENCE_S = 30.0

JOINT = LoadRules(retry_for=20.0, join=True, vacuum=False)


class _Listing(ChoppedSources):
    """Sources of a host that does not see some files."""

    def __init__(self, hidden: Collection[str], at_piece: Callable[[int], None], **options: Any) -> None:
        super().__init__(PIECE_BYTES, at_piece, **options)
        self._hidden = hidden

    def list(self, *arguments: Any, **options: Any) -> tuple[SourceObject, ...]:
        """Return what the parent lists, but for the hidden files."""
        found = super().list(*arguments, **options)
        return tuple(source for source in found if source.uri.rpartition("/")[2] not in self._hidden)


class Member:
    """A process of a load, as a thread: it stops before each piece that it reads until it is let go, or dies there."""

    def __init__(self, cluster: Cluster, *, hides: Collection[str], rules: LoadRules, targets: list[TargetJob]) -> None:
        self.notices: list[str] = []
        self.outcome: LoadOutcome | None = None
        self.error: BaseException | None = None
        self.has_begun = threading.Event()
        self._may_read = threading.Event()
        self._dies = False
        self._dies_at = -1
        self._loader = Loader(
            ConnectionFactory(cluster.loads.conninfo),
            Housekeeping(no_record=True),
            # One object at a time, so that members share even small files.
            tuning=LoadTuning(least_claim_bytes=1),
            sources=partial(_Listing, hides, self._at_piece),
        )
        self._job = LoadJob(targets=tuple(targets), sessions=1, rules=rules)
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        try:
            with self._loader as loader:
                plan = loader.plan(self._job)
                plan = replace(plan, batch=BatchPlan(limit_bytes=BATCH_BYTES, duration_s=None))
                self.outcome = loader.run(plan, on_notice=self.notices.append)
        except BaseException as error:  # noqa: BLE001 (it is what the test asks for)
            self.error = error

    def _at_piece(self, number: int) -> None:
        self.has_begun.set()
        self._may_read.wait(_PATIENCE_S)
        if self._dies or number == self._dies_at:
            raise Killed

    def go(self, *, dies_at: int = -1) -> None:
        """Let it read, until it dies at a piece if one is given."""
        self._dies_at = dies_at
        self._may_read.set()

    def die(self) -> None:
        """Have it die where it has stopped: it tidies up nothing."""
        self._dies = True
        self._may_read.set()
        self.join()
        assert isinstance(self.error, Killed), self.error

    def join(self) -> None:
        """Wait for its end."""
        self.thread.join(_PATIENCE_S)
        assert not self.thread.is_alive(), self.notices

    def finish(self) -> LoadOutcome | PenstockError:
        """Let it read, and return how it ended."""
        self.go()
        self.join()
        if isinstance(self.error, PenstockError):
            return self.error
        assert self.outcome is not None, self.error
        return self.outcome


class Cluster:
    """Members of one load of the files in a folder."""

    def __init__(self, loads: Loads, folder: Path, *, mode: str = "append") -> None:
        self.loads, self.folder, self._mode = loads, folder, mode
        self._members: list[Member] = []
        folder.mkdir()
        for number in range(FILES):
            self.write(number)

    def write(self, number: int) -> None:
        """Write a file of the load; each has rows of its own."""
        first = number * ROWS
        rows = "".join(f"{each},note {each}\n" for each in range(first, first + ROWS))
        (self.folder / f"{number}.csv").write_text("a,b\n" + rows)

    def start(self, *hides: int | str, rules: LoadRules = JOINT, targets: list[TargetJob] | None = None) -> Member:
        """Start a member that does not see some files; it stops at its first piece."""
        own = mode_target(self.folder, self._mode, **({"key": ("a",)} if self._mode == "upsert" else {}))
        hidden = {f"{number}.csv" for number in hides}
        self._members.append(Member(self, hides=hidden, rules=rules, targets=targets or [own]))
        return self._members[-1]

    def lead(self, *hides: int | str) -> Member:
        """Start a member that leads, and has claimed an object."""
        before = self._epoch()
        leader = self.start(*hides)
        assert leader.has_begun.wait(_PATIENCE_S), (leader.error, leader.notices)
        assert self._epoch() == before + 1
        return leader

    def member(self, *hides: int | str) -> Member:
        """Start a member that does not lead, and has claimed an object."""
        before = self._epoch()
        member = self.start(*hides)
        assert member.has_begun.wait(_PATIENCE_S), (member.error, member.notices)
        assert self._epoch() == before
        return member

    def _epoch(self) -> int:
        if not self.loads.has_table("penstock.loads"):
            return 0
        ((epoch,),) = self.loads.execute("SELECT coalesce(sum(epoch), 0)::int FROM penstock.loads")
        return int(epoch)

    def states(self) -> list[Any]:
        """Return the state of each load, with how many objects and claims it has."""
        return self.loads.execute(
            "SELECT l.state, (SELECT count(*) FROM penstock.objects WHERE load = l.id),"
            " (SELECT count(*) FROM penstock.claims WHERE load = l.id) FROM penstock.loads AS l ORDER BY l.began_at"
        )

    @staticmethod
    def finish(*members: Member) -> list[LoadOutcome | PenstockError]:
        """Let members read, and return how each ended."""
        for member in members:
            member.go()
        return [member.finish() for member in members]

    def check(self, files: int = FILES) -> None:
        """Check that each row of the files is there once."""
        found = self.loads.execute("SELECT a FROM t ORDER BY a")
        assert [a for (a,) in found] == list(range(files * ROWS))

    def close(self) -> None:
        """End what is left."""
        for member in self._members:
            member.go(dies_at=0)
            member.thread.join(_PATIENCE_S)


@pytest.fixture(params=["append"])
def cluster(request: pytest.FixtureRequest, database18: str, tmp_path: Path) -> Iterator[Cluster]:
    """Provide the files and a table t with a key."""
    setup = "CREATE TABLE t (a int PRIMARY KEY, b text)"
    if request.param == "append":
        # A row that is stored twice is to be seen, not refused.
        setup = "CREATE TABLE t (a int, b text)"
    made = Cluster(Loads(database18, setup=setup), tmp_path / "files", mode=request.param)
    yield made
    made.close()


_MODES = pytest.mark.parametrize(
    "cluster",
    ["append", "truncate", rest("replace"), "upsert"],
    indirect=True,
)


@_MODES
def test_leader_leaves_objects_that_it_does_not_see_to_a_member_that_has_claimed_them(cluster: Cluster) -> None:
    """It takes over from a leader that has died; nothing is repeated, and nothing is lost."""
    first, member = cluster.lead(), cluster.member()
    first.die()
    second = cluster.lead(1, 2, 3, 4, 5)
    assert any("left to other hosts" in notice for notice in second.notices)
    assert not find_errors(*cluster.finish(second, member))
    assert cluster.states() == [("complete", FILES, 0)]
    cluster.check()


@_MODES
def test_objects_that_no_host_sees_end_the_load_with_an_error_that_names_them(cluster: Cluster) -> None:
    """It stays incomplete, and a host that sees them completes it."""
    cluster.lead().die()
    error = cluster.lead(2, 5).finish()
    assert isinstance(error, SourceError)
    assert "2.csv" in error.message
    assert "5.csv" in error.message
    assert cluster.states() == [("running", FILES, 2)]
    assert not find_errors(cluster.start().finish())
    assert cluster.states() == [("complete", FILES, 0)]
    cluster.check()


def test_leader_names_the_objects_of_members_that_have_left_if_the_server_loses_them(cluster: Cluster) -> None:
    """As a failover may after the load's end: the leader cannot see them, and nobody is left who can."""
    first, member = cluster.lead(), cluster.member()
    first.die()
    leader = cluster.start(1, 2, 3, 4, 5, rules=replace(JOINT, vacuum=True))
    with psycopg.connect(cluster.loads.conninfo) as blocker:
        # The VACUUM behind the load's end waits for this lock.
        blocker.execute("LOCK TABLE t IN SHARE UPDATE EXCLUSIVE MODE")
        leader.go()
        assert not find_errors(member.finish())
        assert cluster.states() == [("complete", FILES, 0)]
        number = "(SELECT number FROM penstock.objects WHERE uri LIKE '%/3.csv')"
        cluster.loads.execute(
            f"DELETE FROM t WHERE a / {ROWS} = 3; DELETE FROM penstock.ranges WHERE object = {number};"
            f"INSERT INTO penstock.claims SELECT id, {number}, NULL FROM penstock.loads;"
            "UPDATE penstock.loads SET state = 'running'"
        )
    error = leader.finish()
    assert isinstance(error, SourceError)
    assert "3.csv" in error.message
    assert cluster.states() == [("running", FILES, 1)]
    assert not find_errors(cluster.start().finish())
    cluster.check()


@pytest.mark.part("rest")
def test_members_that_wait_for_objects_that_nobody_sees_end_before_the_leader(cluster: Cluster) -> None:
    """All of them name the object; the leader is the last, and undoes its steps."""
    cluster.loads.execute("CREATE INDEX ON t (a)")
    rules = replace(JOINT, indexes="rebuild")
    first = cluster.start(rules=rules)
    assert first.has_begun.wait(_PATIENCE_S)
    first.die()
    leader = cluster.start(4, rules=rules)
    assert leader.has_begun.wait(_PATIENCE_S)
    members = [cluster.start(4, rules=rules) for _ in range(2)]
    assert all(member.has_begun.wait(_PATIENCE_S) for member in members)
    for error in cluster.finish(*members, leader):
        assert isinstance(error, SourceError)
        assert "4.csv" in error.message
    assert cluster.loads.execute("SELECT count(*) FROM penstock.changes") == [(0,)]
    assert len(cluster.loads.indexes()) == 1


@pytest.mark.part("rest")
def test_host_that_fails_last_restores_what_the_leader_has_dropped(cluster: Cluster) -> None:
    """The leader fails while the other is live, so it leaves that to it."""
    cluster.loads.execute("CREATE INDEX ON t (a); ALTER TABLE t ADD CHECK (a < 0)")
    rules = replace(JOINT, indexes="rebuild")
    leader = cluster.start(rules=rules)
    assert leader.has_begun.wait(_PATIENCE_S)
    member = cluster.start(rules=rules)
    assert member.has_begun.wait(_PATIENCE_S)
    assert len(cluster.loads.indexes()) == 0
    first = leader.finish()
    assert isinstance(first, DataError)
    assert "other members take its objects" in str(first.detail)
    last = member.finish()
    assert isinstance(last, DataError)
    assert "penstock resume" in str(last.hint)
    assert cluster.loads.execute("SELECT count(*) FROM penstock.changes") == [(0,)]
    assert len(cluster.loads.indexes()) == 1


@pytest.mark.part("rest")
def test_member_leads_before_it_claims_more_if_the_leader_has_died(cluster: Cluster) -> None:
    """Until then nobody would hold what the load has changed."""
    first, member = cluster.lead(), cluster.member()
    first.die()
    # The members look for the leader once a second.
    time.sleep(2.5)
    assert not find_errors(member.finish())
    cluster.check()
    query = (
        "SELECT count(DISTINCT object) FROM penstock.ranges WHERE member = (SELECT max(number) FROM penstock.members)"
    )
    assert cluster.loads.execute(query) == [(FILES - 1,)]


def test_leaders_that_follow_each_other_with_other_lists_keep_the_list_of_the_first(cluster: Cluster) -> None:
    """Some see less of it, and more than it."""
    first, member = cluster.lead(), cluster.member(0)
    first.die()
    cluster.write(6)
    cluster.lead(0, 1, 2).die()
    cluster.write(7)
    third = cluster.lead(3, 4)
    left, outcome = cluster.finish(third, member)
    assert isinstance(left, LeftOutError)
    assert "6.csv" in left.message
    assert "7.csv" in left.message
    assert not find_errors(outcome)
    assert cluster.states() == [("complete", FILES, 0)]
    cluster.check()
    assert not find_errors(cluster.start().finish())
    assert cluster.states() == [("complete", FILES, 0), ("complete", 2, 0)]
    cluster.check(files=8)


def test_host_with_more_files_than_the_load_ends_with_an_error_and_loads_them_when_it_is_run_again(
    cluster: Cluster,
) -> None:
    """The load itself is complete; the other host ends as usual."""
    leader = cluster.lead()
    cluster.write(6)
    member = cluster.member()
    left, outcome = cluster.finish(member, leader)
    assert not find_errors(outcome)
    assert isinstance(left, LeftOutError)
    assert left.exit_code == 4
    assert "6.csv" in left.message
    assert cluster.states() == [("complete", FILES, 0)]
    cluster.check()
    assert not find_errors(cluster.start().finish())
    cluster.check(files=7)


def test_host_with_more_files_names_them_when_it_ends_for_another_reason(cluster: Cluster) -> None:
    """Besides what it has to say."""
    leader = cluster.lead()
    cluster.write(6)
    member = cluster.member()
    cluster.loads.execute("ALTER TABLE t ADD CHECK (a >= 0) NOT VALID; ALTER TABLE t RENAME COLUMN b TO c")
    error = member.finish()
    assert isinstance(error, PenstockError)
    assert not isinstance(error, LeftOutError)
    assert "6.csv" in str(error.detail)
    leader.finish()


@pytest.mark.part("rest")
@pytest.mark.parametrize("cluster", ["append", "truncate"], indirect=True)
def test_host_that_has_waited_for_the_end_names_files_that_are_not_loaded(cluster: Cluster) -> None:
    """It has come when nothing was left to claim; it does not begin the load again."""
    cluster.loads.execute("ALTER TABLE t DROP CONSTRAINT IF EXISTS t_pkey; CREATE INDEX ON t (a)")
    rules = replace(JOINT, indexes="rebuild")
    leader = cluster.start(rules=rules)
    assert leader.has_begun.wait(_PATIENCE_S)
    with psycopg.connect(cluster.loads.conninfo) as blocker:
        # The index cannot be built beside it.
        blocker.execute("LOCK TABLE t IN ROW EXCLUSIVE MODE")
        leader.go()
        _await(lambda: cluster.states() == [("running", FILES, 0)])
        cluster.write(6)
        late, same = cluster.start(rules=rules), cluster.start(6, rules=rules)
        for member in (late, same):
            _await(lambda member=member: any("waiting for the process that leads" in each for each in member.notices))
    left, *outcomes = cluster.finish(late, leader, same)
    assert not find_errors(*outcomes)
    assert isinstance(left, LeftOutError)
    assert "6.csv" in left.message
    assert cluster.states() == [("complete", FILES, 0)]
    cluster.check()


def test_other_version_of_an_object_is_refused_whatever_changed_says(cluster: Cluster) -> None:
    """Another host may be loading the version that the load began with; a process alone may go on with the new one."""
    cluster.lead().die()
    path = cluster.folder / "3.csv"
    text = path.read_text()
    path.unlink()
    path.write_text(text)
    error = cluster.start(rules=replace(JOINT, changed="load")).finish()
    assert isinstance(error, TargetError)
    assert "3.csv" in error.message
    assert "without --join" in str(error.hint)
    assert not find_errors(cluster.start(rules=replace(JOINT, changed="load", join=False)).finish())
    cluster.check()


def test_process_without_join_still_drops_what_is_gone_and_adds_what_has_come(cluster: Cluster) -> None:
    """It ends the other members first, so that nobody is loading what it removes."""
    first, member = cluster.lead(), cluster.member()
    first.die()
    cluster.write(6)
    alone = cluster.start(0, 1, 2, 3, rules=replace(JOINT, join=False))
    assert alone.has_begun.wait(_PATIENCE_S)
    assert find_errors(*cluster.finish(alone, member)) == []
    assert [row[:2] for row in cluster.states()] == [("complete", 3)]
    found = [a for (a,) in cluster.loads.execute("SELECT a FROM t ORDER BY a")]
    assert found == list(range(4 * ROWS, 7 * ROWS))


def test_leader_that_sees_nothing_of_a_target_stores_what_others_have_staged_for_it(
    cluster: Cluster, tmp_path: Path
) -> None:
    """The other target's files are all that it has."""
    cluster.loads.execute("CREATE TABLE u (a int PRIMARY KEY, b text); ALTER TABLE t ADD PRIMARY KEY (a)")
    other = tmp_path / "other"
    other.mkdir()
    (other / "u.csv").write_text("a,b\n1,one\n2,two\n")
    targets = [
        mode_target(other, "upsert", into="u", key=("a",)),
        mode_target(cluster.folder, "upsert", key=("a",)),
    ]
    first = cluster.start(targets=targets)
    assert first.has_begun.wait(_PATIENCE_S)
    member = cluster.start(targets=targets)
    assert member.has_begun.wait(_PATIENCE_S)
    first.die()
    (other / "v.csv").write_text("a,b\n3,three\n")
    leader = cluster.start("u", targets=targets)
    assert leader.has_begun.wait(_PATIENCE_S)
    left, outcome = cluster.finish(leader, member)
    assert isinstance(left, LeftOutError)
    assert not find_errors(outcome)
    assert cluster.loads.execute("SELECT * FROM u ORDER BY a") == [(1, "one"), (2, "two")]
    cluster.check()


def find_errors(*ends: LoadOutcome | PenstockError) -> list[PenstockError]:
    """Return the errors among the ends of members."""
    return [end for end in ends if isinstance(end, PenstockError)]


def _await(is_so: Callable[[], bool]) -> None:
    until_s = time.monotonic() + _PATIENCE_S
    while not is_so():
        assert time.monotonic() < until_s
        time.sleep(0.01)
