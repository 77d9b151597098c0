"""How a kind of change whose records are tags is added (ARCHITECTURE.md): a file is open to all while a job runs.

What stands above GUESTS is a whole kind; `_FileTags` are the tags of a resource, here lines of a file.
"""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from penstock.changes.context import Context, Restored
from penstock.changes.journal import record
from penstock.changes.store_tags import TagStore
from penstock.changes.values import SERVER, Hold, lock_of, server_change
from penstock.core.connect.connection import ConnectionFactory
from penstock.ledger.locks import try_lock
from penstock.restore.repair import plan_repair, repair

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from penstock.changes.values import Change, RepairAction
    from penstock.core.connect.connection import Connection

_OPEN = 0o644


class FileMode:
    """The mode of a file, by its name in a record; see Kind."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def handles(self, change: Change) -> bool:
        """Return whether a record is of a file's mode."""
        return change.kind == "mode"

    def apply(self, change: Change) -> None:
        """Open the file for everybody."""
        (self._folder / change.name).chmod(_OPEN)

    def restore(self, context: Context, changes: Sequence[Change], done: Restored) -> Sequence[Change]:  # noqa: ARG002
        """Give each file the mode that it had, unless somebody has given it another one."""
        for change in changes:
            path = self._folder / change.name
            if stat.S_IMODE(path.stat().st_mode) == _OPEN:
                path.chmod(int(change.record["mode"], 8))
                done.note(change, 0.0)
        return changes

    def restore_rest(self, context: Context, oids: set[int], done: Restored) -> None:
        """Do nothing more."""

    def describe(self, context: Context, change: Change) -> tuple[RepairAction, str]:  # noqa: ARG002
        """Return what a repair does."""
        return "restore", "the job has ended"


GUESTS = "guests.txt"


class _FileTags:
    """Tags in a file; see Tags."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def exists(self) -> bool:
        return True

    def read(self) -> dict[str, str]:
        return dict(json.loads(self._path.read_text())) if self._path.exists() else {}

    def write(self, tags: Mapping[str, str]) -> None:
        self._path.write_text(json.dumps(self.read() | dict(tags)))

    def remove(self, keys: Sequence[str]) -> None:
        self._path.write_text(json.dumps({key: tag for key, tag in self.read().items() if key not in keys}))


def open_context(connection: Connection, folder: Path) -> Context:
    """Return what the kind is changed and restored through."""
    store = TagStore(connection=connection, tags=_FileTags(folder / "tags.json"))
    return Context(store=store, kinds=[FileMode(folder)], notice=lambda _: None, concerns=lambda _: True)


def change(context: Context, folder: Path) -> None:
    """Record the mode of the file, and open it, as long as this session lasts."""
    holder_id = str(uuid.uuid4())
    lock = lock_of(holder_id)
    mode = {"mode": f"{stat.S_IMODE((folder / GUESTS).stat().st_mode):o}"}
    made = server_change("mode", GUESTS, mode, holder_id)
    with context.lock(SERVER):
        try_lock(context.connection, lock)
        record(context, Hold(holder_id=holder_id, target_oid=SERVER, lock=lock, names=(GUESTS,), reason="job"), [made])
        FileMode(folder).apply(made)


def mode(folder: Path) -> int:
    """Return the mode of the file."""
    return stat.S_IMODE((folder / GUESTS).stat().st_mode)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Provide a folder with a file that only its owner reads."""
    (tmp_path / GUESTS).touch(mode=0o600)
    return tmp_path


def test_change_stays_while_its_session_lasts_and_is_restored_then(database18: str, folder: Path) -> None:
    """Its record is tags; a repair says so before."""
    factory = ConnectionFactory(database18)
    with factory.connect() as connection:
        context = open_context(connection, folder)
        with factory.connect() as holder:
            change(open_context(holder, folder), folder)
            pid = holder.info.backend_pid
            assert [step.action for step in plan_repair([context])] == ["wait"]
            repair(context, Restored())
            assert mode(folder) == _OPEN
        _await_end(connection, pid)
        assert [step.action for step in plan_repair([context])] == ["restore"]
        done = Restored()
        repair(context, done)
        assert [each.name for each in done.rebuilt] == [GUESTS]
        assert (mode(folder), context.store.read_changes(), context.store.read_holds()) == (0o600, [], [])


def test_killed_process_is_restored_by_the_next(database18: str, folder: Path) -> None:
    """By kill -9, when the change was made."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, __file__, database18, str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment, text=True) as process:
        assert process.stdout is not None
        pid = int(process.stdout.readline())
        process.send_signal(signal.SIGKILL)
    assert mode(folder) == _OPEN
    with ConnectionFactory(database18).connect() as connection:
        _await_end(connection, pid)
        repair(open_context(connection, folder), Restored())
    assert mode(folder) == 0o600


def _await_end(connection: Connection, pid: int) -> None:
    while connection.execute("SELECT FROM pg_stat_activity WHERE pid = %s", [pid]).fetchone() is not None:
        time.sleep(0.01)


if __name__ == "__main__":
    with ConnectionFactory(sys.argv[1]).connect() as session:
        change(open_context(session, Path(sys.argv[2])), Path(sys.argv[2]))
        print(session.info.backend_pid, flush=True)
        signal.pause()
