"""The recipes in docs/recipes are what systemd, Airflow, Kubernetes and GitHub read, and their commands load."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
import yaml
from psycopg.conninfo import conninfo_to_dict

if TYPE_CHECKING:
    from collections.abc import Iterator

RECIPES = Path(__file__).parents[2] / "docs" / "recipes"
BIN = Path(sys.executable).parent


def blocks(recipe: str, language: str) -> list[str]:
    """Return a recipe's blocks of a language."""
    text = (RECIPES / f"{recipe}.md").read_text("utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


@dataclass(frozen=True)
class Place:
    """A database with the recipes' tables, a folder with files for them, and what names both."""

    database: str
    folder: Path

    @property
    def environment(self) -> dict[str, str]:
        """Return the environment of a recipe's command: connection settings and a PATH with penstock."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith("PG")}
        given = conninfo_to_dict(self.database)
        named = {f"PG{'DATABASE' if key == 'dbname' else key.upper()}": str(value) for key, value in given.items()}
        services = self.folder / "services"
        services.write_text("[sales]\n" + "".join(f"{key}={value}\n" for key, value in given.items()))
        return kept | named | {"PATH": f"{BIN}:{os.environ['PATH']}", "PGSERVICEFILE": str(services)}

    def local(self, command: str) -> str:
        """Return a command that has this place's paths in place of the recipe's."""
        (self.folder / "sales.toml").write_text(
            blocks("cron-systemd", "toml")[0].replace("/srv/sales/", f"{self.folder}/orders/")
        )
        for written, here in (
            ("/opt/penstock/bin/penstock", str(BIN / "penstock")),
            ("/etc/penstock/sales.toml", str(self.folder / "sales.toml")),
            ("/var/lib/prometheus/node-exporter/", f"{self.folder}/"),
            ("s3://sales/orders/{{ ds }}/", f"{self.folder}/orders/"),
            ("s3://sales/orders/", f"{self.folder}/orders/"),
        ):
            command = command.replace(written, here)
        return command

    def run(self, command: str, *, times: int = 2) -> str:
        """Run a command with bash, as often as a schedule might, and return what it printed the first time."""
        printed = []
        for _ in range(times):
            argv = ["bash", "-euc", self.local(command)]
            done = subprocess.run(
                argv, cwd=self.folder, env=self.environment, capture_output=True, text=True, check=False
            )
            assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
            printed.append(done.stdout)
        return printed[0]

    def count(self, table: str) -> int:
        """Return how many rows a table has."""
        with psycopg.connect(self.database) as connection:
            row = connection.execute(f"SELECT count(*) FROM {table}").fetchone()
        assert row is not None
        return int(row[0])


@pytest.fixture
def place(database18: str, tmp_path: Path) -> Place:
    """Provide the tables and three files of ten records each."""
    with psycopg.connect(database18, autocommit=True) as connection:
        for schema, table in (("sales", "orders"), ("reference", "codes")):
            connection.execute(f"CREATE SCHEMA {schema}; CREATE TABLE {schema}.{table} (a int, b text)")
    for name in ("orders", "reference"):
        (tmp_path / name).mkdir()
        for number in range(3):
            records = "".join(f"{number},{letter}\n" for letter in "abcdefghij")
            (tmp_path / name / f"{number}.csv").write_text(f"a,b\n{records}")
    return Place(database18, tmp_path)


@pytest.mark.part("rest")
def test_crontab_loads_what_is_new(place: Place) -> None:
    """A second run loads nothing, and neither prints anything, which cron would mail."""
    (table,) = blocks("cron-systemd", "cron")
    (entry,) = [line for line in table.splitlines() if line[0].isdigit()]
    *_, user, command = entry.split(maxsplit=6)
    assert user == "loader"
    assert place.run(command) == ""
    assert place.count("sales.orders") == 30


@pytest.mark.part("rest")
def test_service_loads_and_writes_metrics(place: Place) -> None:
    """The commands of both lines."""
    service, _ = blocks("cron-systemd", "ini")
    for name in ("ExecStart", "ExecStopPost"):
        (command,) = re.findall(rf"^{name}=(.*)$", service, re.MULTILINE)
        place.run(command)
    assert place.count("sales.orders") == 30
    assert "penstock_stored_rows" in (place.folder / "penstock-sales.prom").read_text()


def test_systemd_takes_the_units(place: Place) -> None:
    """Nothing in them is unknown to it."""
    program = shutil.which("systemd-analyze")
    if program is None:
        pytest.skip("systemd-analyze is not installed (Debian's package systemd)")
    folder = place.folder / "units"
    folder.mkdir()
    for unit, kind in zip(blocks("cron-systemd", "ini"), ("service", "timer"), strict=True):
        (folder / f"penstock-sales.{kind}").write_text(place.local(unit))
    argv = [program, "verify", "--man=no", str(folder / "penstock-sales.timer")]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    mine = [line for line in done.stderr.splitlines() if "penstock" in line]
    assert (done.returncode, mine) == (0, []), done.stderr


@contextmanager
def airflow_of_this_test(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[dict[str, Any]]]:
    """Provide what the DAG file imports, and the list of the operators that it makes."""
    made: list[dict[str, Any]] = []

    class Dag:
        def __init__(self, *, dag_id: str, **_: object) -> None:
            assert dag_id

        def __enter__(self) -> None: ...

        def __exit__(self, *_: object) -> None: ...

    modules: dict[str, dict[str, Any]] = {
        "airflow": {},
        "airflow.sdk": {"DAG": Dag},
        "airflow.providers": {},
        "airflow.providers.standard": {},
        "airflow.providers.standard.operators": {},
        "airflow.providers.standard.operators.bash": {"BashOperator": lambda **given: made.append(given)},
        "pendulum": {"datetime": lambda *_, **__: SimpleNamespace()},
    }
    for name, members in modules.items():
        module = ModuleType(name)
        vars(module).update(members)
        monkeypatch.setitem(sys.modules, name, module)
    yield made


@pytest.mark.part("rest")
def test_airflows_task_loads(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command of the operator; Airflow's modules are stand-ins here, unlike in the next test."""
    (source,) = blocks("airflow", "python")
    with airflow_of_this_test(monkeypatch) as made:
        exec(compile(source, "load_sales.py", "exec"), {})  # noqa: S102 (the recipe)
    (operator,) = made
    assert '"rows": 30' in place.run(operator["bash_command"])
    assert place.count("sales.orders") == 30


def test_airflow_reads_the_dag(tmp_path: Path) -> None:
    """PENSTOCK_TEST_AIRFLOW names the Python of an environment with apache-airflow, which is too large for this one."""
    python = os.environ.get("PENSTOCK_TEST_AIRFLOW")
    if python is None:
        pytest.skip("PENSTOCK_TEST_AIRFLOW names no Python with apache-airflow")
    (source,) = blocks("airflow", "python")
    path = tmp_path / "load_sales.py"
    path.write_text(source)
    program = (
        "import runpy\n"
        "from airflow.sdk import DAG\nfound = []\nenter = DAG.__enter__\n"
        "DAG.__enter__ = lambda dag: (found.append(dag), enter(dag))[1]\n"
        f"runpy.run_path({str(path)!r})\n"
        "(dag,) = found\nprint(dag.dag_id, [task.task_id for task in dag.tasks], dag.catchup)\n"
    )
    done = subprocess.run([python, "-c", program], capture_output=True, text=True, check=False)
    assert "load_sales ['load_orders'] False" in done.stdout, done.stderr


@pytest.mark.part("rest")
def test_kubernetes_job_loads(place: Place) -> None:
    """The container's arguments, after the image's entry point."""
    job = yaml.safe_load(blocks("kubernetes", "yaml")[0])
    (container,) = job["spec"]["template"]["spec"]["containers"]
    assert 'ENTRYPOINT ["penstock"]' in blocks("kubernetes", "dockerfile")[0]
    place.run(shlex.join(["penstock", *container["args"]]))
    assert place.count("sales.orders") == 30


def test_kubernetes_takes_the_job() -> None:
    """By the schema of its API, which is in a package of 108 MB."""
    validator = pytest.importorskip("kubernetes_validate", reason="the Python package kubernetes-validate is missing")
    job = yaml.safe_load(blocks("kubernetes", "yaml")[0])
    validator.validate(job, "1.32", strict=True)


@pytest.mark.part("rest")
def test_workflow_checks_and_loads(place: Place) -> None:
    """Its two steps, by bash as GitHub runs them; each run replaces the table."""
    (job,) = yaml.safe_load(blocks("github-actions", "yaml")[0])["jobs"].values()
    steps = {step["name"]: step["run"] for step in job["steps"] if "name" in step}
    for _ in range(2):
        for command in steps.values():
            place.run(command, times=1)
    assert place.count("reference.codes") == 30


@pytest.mark.part("rest")
def test_github_takes_the_workflow(tmp_path: Path) -> None:
    """By its schema, as the package check-jsonschema has it."""
    path = tmp_path / "load.yml"
    path.write_text(blocks("github-actions", "yaml")[0])
    argv = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.github-workflows", str(path)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
