"""`penstock mcp`, asked by the SDK's own client over standard input and output."""

from __future__ import annotations

import json
import os
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from penstock.mcp.command import TOOLS
from support.loads import IMPATIENT, Loads, target, write_csv

if TYPE_CHECKING:
    from collections.abc import Callable

    from support.command import Finished

RECORDINGS = Path(__file__).parents[1] / "recordings" / "1.0"


def ask(arguments: list[str], *calls: tuple[str, dict[str, Any]], home: Path) -> tuple[list[Any], list[Any]]:
    """Start penstock mcp, and return its tools and its answers to calls of them."""
    # It takes as long to import as a hundred modules of tests, in each process of a test run.
    anyio = pytest.importorskip("anyio", reason="the extra mcp is not installed")
    mcp = pytest.importorskip("mcp", reason="the extra mcp is not installed")
    server = mcp.StdioServerParameters(
        command=sys.executable,
        args=["-m", "penstock", "mcp", *arguments],
        env={**os.environ, "PENSTOCK_HOME": str(home)},
    )

    async def talk() -> tuple[list[Any], list[Any]]:
        async with mcp.Client(server) as client:
            tools = (await client.list_tools()).tools
            return tools, [await client.call_tool(name, given) for name, given in calls]

    return anyio.run(talk)


@pytest.fixture
def people(tmp_path: Path) -> Path:
    """Provide a file with a record that its table refuses."""
    (tmp_path / "in").mkdir()
    return write_csv(tmp_path / "in" / "people.csv", ["1,Ann", "two,Bob", "3,Cy"], header="a,b")


@pytest.mark.part("rest")
def test_each_tool_answers_and_only_reads(database18: str, people: Path, tmp_path: Path) -> None:
    """The server, a plan, loads, rejects, waits, a recording. The tables are as they were."""
    (tmp_path / "recordings").mkdir()
    shutil.copy(next(RECORDINGS.glob("*.recording")), tmp_path / "recordings")
    loads = Loads(database18, setup="CREATE TABLE t (a int, b text)")
    loads.run(target(people), rules=replace(IMPATIENT, on_error="reject"))
    before = loads.execute("SELECT count(*), (SELECT count(*) FROM penstock.loads) FROM t")
    tools, answers = ask(
        [str(people.parent), "--to", database18],
        ("doctor", {"table": "t"}),
        ("plan", {"source": str(people), "table": "new", "create": True, "types": "infer"}),
        ("loads", {}),
        ("rejects", {}),
        ("watch", {"seconds": 1}),
        ("temp_usage", {"seconds": 1}),
        ("diagnose", {}),
        ("storage_plan", {"volume": "gp3:100GiB:3000:125"}),
        home=tmp_path,
    )
    assert [tool.name for tool in tools] == list(TOOLS)
    assert all(tool.annotations.read_only_hint and tool.description for tool in tools)
    assert [answer.is_error for answer in answers] == [False] * 8
    doctor, plan, listed, rejects, watched, usage, found, storage = (
        json.loads(answer.content[0].text) for answer in answers
    )
    assert doctor["would_load"]
    assert plan["plan"]["targets"]
    assert [load["state"] for load in listed["loads"]] == ["complete"]
    assert "two" in json.dumps(rejects["causes"])
    assert watched["window_s"] >= 0
    assert "statements" in usage
    assert found["began"]
    assert "candidates" in storage
    assert loads.execute("SELECT count(*), (SELECT count(*) FROM penstock.loads) FROM t") == before
    assert not loads.has_table("new")


@pytest.mark.part("rest")
def test_what_a_tool_may_not_do_is_an_error_for_the_model(database18: str, people: Path, tmp_path: Path) -> None:
    """A source that the user has not named, an unknown argument, a load that does not exist."""
    other = write_csv(tmp_path / "other.csv", ["1,x"])
    _, answers = ask(
        [str(people.parent), "--to", database18],
        ("plan", {"source": str(other), "table": "t", "create": True}),
        ("plan", {"source": f"{people.parent}/../other.csv", "table": "t", "create": True}),
        ("plan", {"source": "-", "table": "t", "create": True}),
        ("rejects", {"load_id": "0a1b"}),
        ("watch", {"seconds": 3600}),
        home=tmp_path,
    )
    assert [answer.is_error for answer in answers] == [True] * 5
    texts = [answer.content[0].text for answer in answers]
    assert "none of the sources that penstock mcp may read" in texts[0]
    assert "HINT:  " in texts[0]
    assert all("none of the sources" in text for text in texts[:3])


@pytest.mark.part("rest")
def test_plan_takes_the_options_that_a_warning_names_and_no_others(database18: str, tmp_path: Path) -> None:
    """A model that follows the hint sees the column's type; none of its options names another server."""
    path = write_csv(tmp_path / "prices.csv", ["1;1,5", "2;2,5"], header="k;price")
    asked = {"source": str(path), "table": "t", "create": True, "types": "infer"}
    _, answers = ask(
        [str(path), "--to", database18],
        ("plan", asked),
        ("plan", asked | {"dialect": {"decimal_comma": "price"}}),
        ("plan", asked | {"dialect": {"to": "host=elsewhere"}}),
        home=tmp_path,
    )
    texts = [answer.content[0].text for answer in answers]
    assert "--decimal-comma price" in texts[0]
    assert "--decimal-comma price" not in texts[1]
    assert "numeric" in texts[1]
    assert answers[2].is_error
    assert '"to" is no option of a dialect' in texts[2]


@pytest.mark.part("rest")
def test_a_name_that_does_not_exist_is_an_error(database18: str, people: Path, tmp_path: Path) -> None:
    """Of an argument, a table, a load or a file."""
    Loads(database18, setup="CREATE TABLE t (a int, b text)").run(
        target(people), rules=replace(IMPATIENT, on_error="reject")
    )
    _, answers = ask(
        [str(people.parent), "--to", database18],
        ("doctor", {"into": "none"}),
        ("rejects", {"id": "none"}),
        ("plan", {"source": str(people), "table": "t", "to": "host=elsewhere"}),
        ("doctor", {"table": "none"}),
        ("plan", {"source": str(people), "table": "none"}),
        ("loads", {"table": "none"}),
        ("rejects", {"load_id": "none"}),
        ("plan", {"source": f"{people.parent}/none.csv", "table": "t"}),
        ("plan", {"source": f"{people.parent}/none*", "table": "t"}),
        ("storage_plan", {"volume": "none"}),
        home=tmp_path,
    )
    assert [answer.is_error for answer in answers] == [True] * 10
    texts = [answer.content[0].text for answer in answers]
    assert all("Extra inputs are not permitted" in text for text in texts[:3])
    assert all("none" in text for text in texts[3:])


@pytest.mark.part("rest")
def test_errors_show_control_characters_as_escapes(database18: str, tmp_path: Path) -> None:
    """Those of a name that the model gives, and those of a server's message."""
    Loads(database18, setup="CREATE TABLE t (a int)")
    _, answers = ask(
        ["--to", database18],
        ("doctor", {"table": "t\x1b[31m\u202e"}),
        ("rejects", {"load_id": "t\x9b\r"}),
        home=tmp_path,
    )
    texts = [answer.content[0].text for answer in answers]
    assert [answer.is_error for answer in answers] == [True] * 2
    assert r"t\x1b[31m\u202e" in texts[0]
    assert r"t\x9b\r" in texts[1]
    assert not {"\x1b", "\u202e", "\x9b", "\r"} & {*"".join(texts)}


def test_empty_source_is_refused(penstock: Callable[..., Finished]) -> None:
    """It would be the current folder, and all below it: an unset variable of a shell is empty."""
    finished = penstock("mcp", "")
    assert (finished.code, finished.out) == (2, "")
    assert "a source is empty" in finished.err


def test_standard_input_is_no_source(penstock: Callable[..., Finished]) -> None:
    """It has the client's requests."""
    finished = penstock("mcp", "-")
    assert (finished.code, finished.out) == (2, "")
    assert "standard input cannot be a source" in finished.err
