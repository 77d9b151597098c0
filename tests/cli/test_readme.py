"""The commands in README and the docs work, and print what is shown."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from penstock.loading.views.outcome import describe_outcome
from support.loads import IMPATIENT, Loads, target, write_csv

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from support.servers import ServerPool

ROOT = Path(__file__).parents[2]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def transcripts(document: Path) -> list[tuple[str, list[str]]]:
    """Return the `$ ...` lines of a document's console blocks, each with the lines that it is said to print."""
    blocks = re.findall(r"^```console\n(.*?)^```", document.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    found: list[tuple[str, list[str]]] = []
    for line in (line for block in blocks for line in block.splitlines()):
        if line.startswith("$ "):
            found.append((line[2:], []))
        else:
            found[-1][1].append(line)
    return found


def commands(document: Path) -> list[str]:
    """Return the `$ penstock ...` lines of a document's console blocks."""
    return [command for command, _ in transcripts(document) if command.startswith("penstock ")]


# What differs from run to run and from machine to machine.
_VARYING = (
    (re.compile(r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b"), "ID"),
    (re.compile(r"\b[\d,]+(?:\.\d+)? (MB/s|[kMG]?B|ms|s|min|sessions?)\b"), r"# \1"),
    (re.compile(r"# sessions?"), "# sessions"),
    (re.compile(r"\b\d+ %"), "# %"),
    (re.compile(r" +"), " "),
)


def shape(line: str) -> str:
    """Return a line without what differs from run to run: times, rates, sizes, numbers of sessions and ids."""
    for pattern, word in _VARYING:
        line = pattern.sub(word, line)
    return line.rstrip()


@pytest.fixture
def shell(tmp_path: Path, servers: ServerPool) -> Iterator[Callable[[str], subprocess.CompletedProcess[str]]]:
    """Provide a function that runs a command line in an empty folder, with an embedded server of its own."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PG")}
    environment["PENSTOCK_HOME"] = str(servers.new_home())
    environment["PATH"] = f"{Path(sys.executable).parent}:{environment['PATH']}"

    def run(line: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["bash", "-o", "pipefail", "-c", line],
            cwd=tmp_path,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )

    yield run
    assert run("penstock server stop").returncode == 0


@pytest.mark.part("rest")
@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_documented_commands_work_in_order(
    document: Path, shell: Callable[[str], subprocess.CompletedProcess[str]]
) -> None:
    """Each document's commands run one after another; one that is said to print an error fails."""
    for command, said in transcripts(document):
        done = shell(command)
        fails = any(line.startswith("error: ") for line in said)
        assert (done.returncode != 0) == fails, f"{command}\n{done.stdout}"


def test_transcripts_of_the_overview_are_what_is_printed(
    shell: Callable[[str], subprocess.CompletedProcess[str]],
) -> None:
    """Every line that is shown below a command, errors too, but for times, rates and the like."""
    compared = 0
    for command, said in transcripts(ROOT / "docs" / "overview.md"):
        printed = shell(command).stdout.splitlines()
        assert list(map(shape, printed)) == list(map(shape, said)), f"{command}\n" + "\n".join(printed)
        compared += len(said)
    assert compared > 8


@pytest.mark.part("rest")
def test_lines_of_the_tutorial_are_printed(
    shell: Callable[[str], subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    """In their order; the tutorial leaves lines out. Its files are in a folder that it calls /data."""
    for command, said in transcripts(ROOT / "docs" / "tutorial.md"):
        printed = [shape(line) for line in shell(command).stdout.replace(str(tmp_path), "/data").splitlines()]
        shown = [shape(line) for line in said]
        assert [line for line in printed if line in shown] == shown, f"{command}\n" + "\n".join(printed)


@pytest.mark.part("rest")
def test_first_commands_of_readme_load_the_files_that_they_name(
    shell: Callable[[str], subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    """A plain file, a messy one whose plan names the options, a folder that gets a file with a column more."""
    block = re.findall(
        r"^```sh\n(.*?)^```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE
    )[0]
    lines = [line for line in block.splitlines() if line.startswith("penstock ")]
    landing = tmp_path / "landing"
    landing.mkdir()
    (tmp_path / "my.csv").write_text("id,name\n1,Ann\n2,Bob\n")
    (tmp_path / "export.csv").write_text("sold;price\n31.12.2025;1.234,50\n01.11.2025;0,5\n")
    (landing / "1.csv").write_text("id,name\n1,Ann\n")
    printed = {}
    for line in lines:
        done = shell(line)
        assert done.returncode == 0, f"{line}\n{done.stdout}"
        printed[line.split()[2]] = done.stdout
    assert all(option in printed["export.csv"] for option in ("--decimal-comma", "--date-order"))
    (landing / "2.csv").write_text("id,name,since\n3000000000,Cyd,2026-01-31\n")
    done = shell(lines[-1])
    assert "loaded 1 row into public.events" in done.stdout
    found = shell("penstock server psql -Atc 'SELECT * FROM events ORDER BY id'")
    assert found.stdout.splitlines()[-2:] == ["1|Ann|", "3000000000|Cyd|2026-01-31"]


# README's files have more rows, and refer to more customers.
ORDERS = """
    CREATE TABLE customers (id int PRIMARY KEY);
    INSERT INTO customers SELECT generate_series(1, 100000);
    CREATE TABLE orders (id bigint, customer int REFERENCES customers, placed timestamptz, amount numeric, note text);
    INSERT INTO orders VALUES (0, 1, now(), 1, 'yesterday');
"""
ORDER_COUNT = 300_000


@pytest.mark.part("rest")
def test_story_of_readme_is_what_its_loads_print(database18: str, tmp_path: Path) -> None:
    """A load that a foreign key limits, with its verdict, and one with the remedy; README leaves lines out."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"^```text\n\$ (penstock load .*?)^```", text, re.DOTALL | re.MULTILINE)
    lines = [f"{n},{1 + n * 7919 % 100_000},2026-11-26,{n % 1000}.5,order {n}" for n in range(ORDER_COUNT)]
    varying = re.compile(r"[\d,]+ rows into|on (?:embedded )?PostgreSQL .*")
    Loads(database18, setup=ORDERS)
    # A line that begins with blanks belongs to the one above it.
    for number, part in enumerate(block.replace("\n    ", " ").split("\n$ ")):
        command, *said = part.splitlines()
        path = write_csv(tmp_path / f"{number}.csv", lines, header="id,customer,placed,amount,note")
        loads = Loads(database18, record=tmp_path / f"{number}.recording", least_verdict_bytes=1)
        if any(line.startswith("limited by: ") for line in said):
            loads.tune(least_verdict_s=0.1)
        rules = replace(IMPATIENT, indexes="rebuild" if "--indexes rebuild" in command else "auto")
        printed = describe_outcome(loads.run(target(path, into="orders"), sessions=None, rules=rules))
        found, shown = ([varying.sub("#", shape(line)) for line in lines] for lines in (printed, said))
        assert [line for line in found if line in shown] == shown, printed


LINEITEM = """
    CREATE SCHEMA tpch;
    CREATE TABLE tpch.orders (o_orderkey int PRIMARY KEY);
    INSERT INTO tpch.orders SELECT generate_series(1, 1000);
    CREATE TABLE tpch.lineitem (l_orderkey int REFERENCES tpch.orders, l_linenumber int, l_partkey int, l_suppkey int,
        l_shipdate date, l_shipmode text, l_comment text, PRIMARY KEY (l_orderkey, l_linenumber));
    CREATE INDEX lineitem_comment ON tpch.lineitem (l_comment);
    CREATE INDEX lineitem_part_supplier ON tpch.lineitem (l_partkey, l_suppkey);
    CREATE INDEX lineitem_shipmode ON tpch.lineitem (l_shipmode);
    CREATE INDEX lineitem_shipdate ON tpch.lineitem (l_shipdate);
"""


@pytest.mark.part("rest")
def test_transcript_of_a_rebuild_has_the_lines_that_are_printed(
    shell: Callable[[str], subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    """That of docs/settings.md is of a record, on another server; here it is a thousand rows, with default settings."""
    text = (ROOT / "docs" / "settings.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"^```text\n\$ (penstock load lineitem.*?)^```", text, re.DOTALL | re.MULTILINE)
    command, *lines = block.splitlines()
    # Three dots stand for lines that only a large load prints.
    said = [line for line in lines if line != "..."]
    defaults = ("ALTER SYSTEM SET max_wal_size = '1GB'", "ALTER SYSTEM SET checkpoint_timeout = '5min'")
    statements = (LINEITEM, *defaults, "SELECT pg_reload_conf()")
    done = shell(f"penstock server psql {' '.join(f'-c {shlex.quote(each)}' for each in statements)}")
    assert done.returncode == 0, done.stdout
    (tmp_path / "lineitem.csv").write_text("".join(f"{n},1,2,3,2026-11-26,MAIL,x\n" for n in range(1, 1001)))
    done = shell(f"{command} 2>/dev/null")
    assert done.returncode == 0
    # The order of the rebuild is that of the indexes' sizes.
    # The profile gives max_wal_size a part of the disk's free space.
    of_server = re.compile(r"[\d,]+ rows into|on (?:embedded )?PostgreSQL [0-9]+.*|(?<=1GB )[0-9]+[MG]B(?= 1GB)")
    printed, shown = (
        sorted(of_server.sub("#", shape(line)) for line in lines) for lines in (done.stdout.splitlines(), said)
    )
    assert printed == shown, done.stdout


@pytest.mark.part("rest")
def test_documented_python_runs_as_it_stands(tmp_path: Path, servers: ServerPool) -> None:
    """The blocks of docs/python.md are one program, on an embedded server; without set-up its warnings are printed."""
    text = (ROOT / "docs" / "python.md").read_text(encoding="utf-8")
    program = "\n".join(re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE))
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PG")}
    environment["PENSTOCK_HOME"] = str(servers.new_home())
    argv = [sys.executable, "-W", "error", "-c", program]
    done = subprocess.run(argv, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    stop = [sys.executable, "-m", "penstock", "server", "stop"]
    subprocess.run(stop, env=environment, capture_output=True, check=True)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    (literal_null,) = re.findall(r"^literal-null (.*?) Use ", done.stdout, re.MULTILINE)
    assert literal_null in done.stderr
    assert "0 records are left" in done.stdout
