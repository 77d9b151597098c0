"""Creates a standby by copying a running primary, and promotes a standby.

The standby's settings name its primary (primary_conninfo).
"""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

from penstock.lab.cluster import make_home, make_private_dir, write_private
from penstock.lab.control import reachable
from penstock.lab.programs import run_program
from penstock.lab.users import choose_server_user

if TYPE_CHECKING:
    from penstock.lab.embedded import EmbeddedServer

# A lab's server has tens of gigabytes at most.
_COPY_TIMEOUT_S = 3600
_PROMOTE_TIMEOUT_S = 120


def copy_primary(standby: EmbeddedServer, primary: EmbeddedServer) -> None:
    """Copy a running primary's data to a standby that is down, completely or not at all. Raises LabError."""
    files, user = standby.spec.files, choose_server_user(primary.data_dir)
    make_home(files, user=user)
    shutil.rmtree(files.data, ignore_errors=True)
    copy = files.home / "copy"
    shutil.rmtree(copy, ignore_errors=True)
    make_private_dir(copy, user)
    run_program(
        [
            reachable(primary.spec, user).program("pg_basebackup"),
            f"--dbname={primary.conninfo()}",
            f"--pgdata={copy}",
            "--checkpoint=fast",
            "--wal-method=stream",
            "--no-sync",
            "--no-manifest",
            "--no-password",
        ],
        purpose="copy a primary",
        user=user,
        timeout_s=_COPY_TIMEOUT_S,
        cwd=copy,
    )
    write_private(copy / "standby.signal", "", owner=user)
    copy.rename(files.data)


def promote(standby: EmbeddedServer) -> None:
    """Promote a running standby. Raises LabError."""
    user = choose_server_user(standby.data_dir)
    run_program(
        [
            reachable(standby.spec, user).program("pg_ctl"),
            "promote",
            f"--pgdata={standby.data_dir}",
            "--wait",
            "--silent",
        ],
        purpose="promote a standby",
        user=user,
        timeout_s=_PROMOTE_TIMEOUT_S,
        cwd=standby.data_dir,
    )
