"""`penstock server` as it is typed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from penstock.api.connect import connect_to
from penstock.cli.main import main
from penstock.embedded.command import app
from penstock.embedded.installations import default_installation, find_installations
from penstock.embedded.server import default_server
from support.servers import installed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.servers import ServerPool


@pytest.fixture
def home(servers: ServerPool, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Provide an empty PENSTOCK_HOME."""
    folder = servers.new_home()
    monkeypatch.setenv("PENSTOCK_HOME", str(folder))
    yield folder
    for installation in (*find_installations(), *installed().values()):
        default_server(installation.bin_dir).stop("immediate")


def _run(*argv: str, exit_code: int = 0) -> str:
    result = CliRunner().invoke(app, argv, catch_exceptions=False)
    assert result.exit_code == exit_code, result.output
    return result.stdout


def _run_process(*argv: str, **environment: str) -> subprocess.CompletedProcess[str]:
    program = "from penstock.embedded.command import app; app()"
    return subprocess.run(
        [sys.executable, "-c", program, *argv],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def test_status_follows_start_and_stop(home: Path) -> None:
    """Status exits with 3 while there is no server, as pg_ctl's does."""
    assert "is not running" in _run("status", exit_code=3)
    conninfo = _run("start").strip()
    assert f"connect with: {conninfo}" in _run("status")
    assert _run("stop") == "server stopped\n"
    assert _run("stop") == "server was not running\n"
    assert "is not running" in _run("status", exit_code=3)


def test_status_json_names_process_and_files(home: Path) -> None:
    """One object, with null for what a stopped server lacks."""
    stopped = json.loads(_run("status", "--json", exit_code=3))
    assert (stopped["state"], stopped["pid"]) == ("stopped", None)
    conninfo = _run("start").strip()
    running = json.loads(_run("status", "--json"))
    assert running["state"] == "running"
    assert running["conninfo"] == conninfo
    assert running["major"] == default_installation().major
    assert Path(running["data_dir"]).is_relative_to(home)


@pytest.mark.part("rest")
@pytest.mark.usefixtures("home")
def test_load_names_the_embedded_server(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Who did not mean it sees at once where the rows went, and where they are gone."""
    path = tmp_path / "t.csv"
    path.write_text("a\n1\n")
    assert main(["load", str(path), "--into", "t", "--create"]) == 0
    major = default_installation().major
    assert capfd.readouterr().out.splitlines()[0].endswith(f" on embedded PostgreSQL {major}, database postgres")
    assert main(["undo", "latest"]) == 0
    assert capfd.readouterr().out.splitlines()[0].endswith(f" on embedded PostgreSQL {major}, database postgres:")


@pytest.mark.pg(">= 15, != 18")
def test_start_with_pg_bin_uses_that_version(home: Path, servers: ServerPool, pg_major: int | None) -> None:
    """Each major version has a server of its own."""
    major = pg_major or 16
    bin_dir = str(servers.installation(major).bin_dir)
    assert f"server-{major}" in _run("start", "--pg-bin", bin_dir)
    assert json.loads(_run("status", "--json", "--pg-bin", bin_dir))["major"] == major
    _run("status", exit_code=3)


@pytest.mark.part("rest")
def test_psql_starts_server_and_passes_arguments(home: Path) -> None:
    """Psql's own options need no separator, and its exit code is ours."""
    finished = _run_process("psql", "-X", "-At", "-c", "SELECT current_user, current_database()")
    assert finished.stdout == "postgres|postgres\n"
    assert _run_process("psql", "-X", "-v", "ON_ERROR_STOP=1", "-f", "/nonexistent").returncode == 1


def test_psql_is_not_led_astray_by_environment(home: Path) -> None:
    """PGHOST and its like mean other servers."""
    environment = {"PGHOST": "192.0.2.1", "PGPORT": "1", "PGUSER": "nobody", "PGDATABASE": "none"}
    finished = _run_process("psql", "-X", "-At", "-c", "SELECT current_user", **environment)
    assert finished.stdout == "postgres\n"


# What people have in their environment for servers elsewhere.
_STRICT = (
    {"PGCHANNELBINDING": "require"},
    {"PGREQUIREAUTH": "scram-sha-256"},
    {"PGREQUIREPEER": "somebody"},
    {"PGGSSENCMODE": "require"},
    {"PGSSLCERTMODE": "require"},
    {"PGSSLMODE": "verify-full", "PGSSLROOTCERT": "system", "PGSSLNEGOTIATION": "direct"},
)


@pytest.mark.part("rest")
@pytest.mark.parametrize("variables", _STRICT, ids=lambda variables: next(iter(variables)))
def test_embedded_server_is_reached_whatever_is_asked_of_others(
    home: Path, monkeypatch: pytest.MonkeyPatch, variables: dict[str, str]
) -> None:
    """Passwords, TLS and Kerberos are for servers elsewhere; this one has a socket that its owner alone enters."""
    for name in ("PGHOST", "PGHOSTADDR", "PGPORT", "PGDATABASE", "PGSERVICE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    # With any of these, it has to be named.
    with connect_to(pg_bin=default_installation().bin_dir).connect() as connection:
        assert connection.info.user == "postgres"
    assert _run_process("psql", "-X", "-At", "-c", "SELECT current_user").stdout == "postgres\n"


@pytest.mark.parametrize("command", ["start", "stop", "status", "psql"])
def test_help_documents_exit_codes(command: str) -> None:
    """A script's author finds them where they look first."""
    assert "Exit codes:" in _run(command, "--help")
