"""A real PgBouncer: the machine's own, or Debian's package, fetched and unpacked without installing it.

apt-get and dpkg-deb do that in the user's cache, once per machine; libraries that the machine lacks come with it. As
root it runs under the embedded server's account, since it refuses to be root.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from psycopg.conninfo import conninfo_to_dict, make_conninfo

from penstock.embedded.control import exclusive_lock
from penstock.embedded.users import ServerUser, choose_server_user, give_to

if TYPE_CHECKING:
    from collections.abc import Iterator

PoolMode = Literal["session", "transaction"]

_FETCH_TIMEOUT_S = 120
_START_PATIENCE_S = 20
_END_PATIENCE_S = 10


class Unavailable(Exception):
    """PgBouncer cannot be had here; the message says why."""


@contextlib.contextmanager
def pgbouncer(conninfo: str, directory: Path, *, mode: PoolMode, data_dir: Path) -> Iterator[str]:
    """Provide a conninfo to the same database through a PgBouncer of its own, which ends with the block.

    `conninfo` leads to the server by a socket that trusts; `data_dir` is that server's, `directory` one that its
    account can reach. Raises Unavailable.
    """
    user = choose_server_user(data_dir)
    home = Path(tempfile.mkdtemp(prefix="pgbouncer-", dir=directory))
    give_to(home, user)
    program, libraries = _place(directory / "pgbouncer")
    port = _find_free_port()
    target = conninfo_to_dict(conninfo)
    _write_configuration(home, target, port=port, mode=mode, user=user)
    process = subprocess.Popen(
        [program, "--quiet", str(home / "pgbouncer.ini")],
        cwd=home,
        env={"LC_ALL": "C", "LD_LIBRARY_PATH": str(libraries)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        user=None if user is None else user.uid,
        group=None if user is None else user.gid,
        extra_groups=None if user is None else [],
    )
    try:
        _await_port(process, port, home / "pgbouncer.log")
        yield make_conninfo(dbname=target["dbname"], user=target["user"], host="127.0.0.1", port=port)
    finally:
        process.terminate()
        try:
            process.wait(_END_PATIENCE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        shutil.rmtree(home, ignore_errors=True)


def _write_configuration(
    home: Path, target: dict[str, str], *, port: int, mode: PoolMode, user: ServerUser | None
) -> None:
    files = {
        "pgbouncer.ini": f"""\
[databases]
* = host={target["host"]} port={target["port"]}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = trust
auth_file = {home / "users.txt"}
logfile = {home / "pgbouncer.log"}
pool_mode = {mode}
server_tls_sslmode = disable
""",
        "users.txt": f'"{target["user"]}" ""\n',
    }
    for name, text in files.items():
        (home / name).write_text(text)
        give_to(home / name, user)


def _await_port(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    deadline_s = time.monotonic() + _START_PATIENCE_S
    while time.monotonic() < deadline_s and process.poll() is None:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        time.sleep(0.02)
    said = log.read_text().strip() if log.exists() else ""
    raise AssertionError(f"PgBouncer did not start (status {process.poll()}): {said}")


def _find_free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


# ---------------------------------------------------------------- the program


def _place(folder: Path) -> tuple[str, Path]:
    """Return a program that the server's account can run, and the folder of libraries to run it with."""
    own = shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
    if own is not None:
        return own, folder
    cached = _fetch()
    if not folder.exists():
        unfinished = Path(tempfile.mkdtemp(prefix="pgbouncer.new-", dir=folder.parent))
        for file in cached.iterdir():
            shutil.copy2(file, unfinished / file.name)
        unfinished.chmod(0o755)
        unfinished.rename(folder)
    return str(folder / "pgbouncer"), folder


def _fetch() -> Path:
    """Return the folder with PgBouncer and the libraries that the machine lacks, fetching them the first time."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "penstock-tests"
    folder = cache / "pgbouncer"
    cache.mkdir(parents=True, exist_ok=True)
    with exclusive_lock(cache / "pgbouncer.lock"):
        if not folder.is_dir():
            for tool in ("apt-get", "dpkg-deb", "dpkg-query", "ldd"):
                if shutil.which(tool) is None:
                    raise Unavailable(f"it is not installed (Debian's package pgbouncer), nor fetched without {tool}")
            with tempfile.TemporaryDirectory(dir=cache) as scratch:
                _unpack(Path(scratch)).rename(folder)
    return folder


def _unpack(scratch: Path) -> Path:
    """Return a folder with the program and its libraries."""
    package = _download("pgbouncer", scratch)
    depends = _run(["dpkg-deb", "--field", str(package), "Depends"], scratch)
    names = [part.split("|")[0].split()[0] for part in depends.split(",")]
    for name in names:
        if name.startswith("lib") and not _is_installed(name):
            _download(name, scratch)
    unpacked, chosen = scratch / "unpacked", scratch / "chosen"
    for archive in scratch.glob("*.deb"):
        _run(["dpkg-deb", "--extract", str(archive), str(unpacked)], scratch)
    chosen.mkdir()
    shutil.copy2(unpacked / "usr/sbin/pgbouncer", chosen)
    for library in unpacked.glob("usr/lib/**/*.so*"):
        # Links are followed: each name becomes a file.
        shutil.copy2(library, chosen)
    environment = {**os.environ, "LD_LIBRARY_PATH": str(chosen)}
    if "not found" in _run(["ldd", str(chosen / "pgbouncer")], scratch, environment):
        raise Unavailable("Debian's package lacks libraries on this machine")
    return chosen


def _download(name: str, scratch: Path) -> Path:
    try:
        _run(["apt-get", "--quiet", "download", name], scratch)
    except Unavailable:
        # Lists of packages that are old or not there; only root may renew them.
        if os.geteuid() != 0:
            raise
        _run(["apt-get", "--quiet", "update"], scratch)
        _run(["apt-get", "--quiet", "download", name], scratch)
    [package] = scratch.glob(f"{name}_*.deb")
    return package


def _is_installed(name: str) -> bool:
    shown = subprocess.run(
        ["dpkg-query", "--show", "--showformat=${db:Status-Status}", name], capture_output=True, text=True, check=False
    )
    return shown.stdout == "installed"


def _run(argv: list[str], cwd: Path, environment: dict[str, str] | None = None) -> str:
    try:
        return subprocess.run(
            argv,
            cwd=cwd,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_FETCH_TIMEOUT_S,
            check=True,
        ).stdout
    except subprocess.TimeoutExpired as error:
        raise Unavailable(f"{argv[0]} did not end within {_FETCH_TIMEOUT_S} s") from error
    except subprocess.CalledProcessError as error:
        said = (error.stderr or error.stdout or "").strip().splitlines()
        raise Unavailable(f"{argv[0]} could not fetch it: {said[-1] if said else error}") from error
