"""A new step of a load is one class and one line of the list: plan, outcome, text and JSON loop over the steps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from penstock.core.errors import DataError
from penstock.core.values.accounts import PlanPart, Rows
from penstock.core.values.job import LoadJob, LoadRules
from penstock.loading import run
from penstock.loading.steps import order
from penstock.loading.steps.step import Step
from penstock.loading.views.outcome import describe_outcome, outcome_object
from penstock.loading.views.plan import describe_plan, plan_object
from support.files import write_to
from support.loads import Loads, target

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from penstock.core.connect.connection import Connection
    from penstock.loading.context import LoadTools
    from penstock.loading.steps.step import PlanFacts, RunningLoad
    from penstock.loading.values.outcome import LoadOutcome
    from penstock.loading.values.plan import LoadPlan


@dataclass(frozen=True, slots=True, kw_only=True)
class CountedPages:
    """How many pages a table has before and after a load."""

    before: int
    after: int

    def describe(self) -> Sequence[str | Rows]:
        """Return a line, and a row for each count."""
        return [f"{self.after - self.before} pages", Rows([("before", str(self.before))], align="<>")]


@dataclass(frozen=True, slots=True, kw_only=True)
class PagesPlan(PlanPart):
    """How many pages a table has now."""

    now: int

    def describe(self) -> Sequence[str | Rows]:
        """Return a line."""
        return [f"{self.now} pages now"]


class Pages(Step):
    """Counts the pages of table t."""

    name = "pages"

    def __init__(self) -> None:
        self._before = -1
        self.has_failed = False

    def plan(self, facts: PlanFacts) -> PagesPlan:
        """Count for --plan."""
        return PagesPlan(now=_count(facts.connection))

    def before(self, load: RunningLoad, connection: Connection) -> None:  # noqa: ARG002
        """Count before the rows."""
        self._before = _count(connection)

    def conclude(self, load: RunningLoad, outcome: LoadOutcome) -> LoadOutcome:
        """Count when the load is complete."""
        return outcome.with_part(self.name, CountedPages(before=self._before, after=load.at_end(_count)))

    def on_failure(self, load: RunningLoad, connection: Connection | None, why: str) -> None:  # noqa: ARG002
        """Note the failure."""
        self.has_failed = True


def _count(connection: Connection) -> int:
    row = connection.execute("SELECT pg_catalog.pg_relation_size('public.t') / 8192").fetchone()
    assert row is not None
    return int(row[0])


@pytest.fixture
def pages(monkeypatch: pytest.MonkeyPatch) -> Pages:
    """Provide the step, in the list of steps."""
    step = Pages()

    make_steps = order.make_steps

    def make_one_more(plan: LoadPlan, tools: LoadTools) -> tuple[Step, ...]:
        return (step, *make_steps(plan, tools))

    for module in (order, run):
        monkeypatch.setattr(module, "make_steps", make_one_more)
    return step


@pytest.mark.usefixtures("pages")
def test_a_steps_part_is_in_the_outcome_its_text_and_its_json(database18: str, tmp_path: Path) -> None:
    """By its name, which nothing else knows."""
    loads = Loads(database18)
    loads.execute("CREATE TABLE t (a int)")
    outcome = loads.run(target(write_to(tmp_path / "rows.csv", "a\n1\n2\n")))
    assert outcome.steps["pages"] == CountedPages(before=0, after=1)
    assert {"1 pages", "  before  0"} <= set(describe_outcome(outcome))
    steps = outcome_object(outcome)["steps"]
    assert isinstance(steps, dict)
    assert steps["pages"] == {"before": 0, "after": 1}


@pytest.mark.usefixtures("pages")
def test_a_steps_part_is_in_the_plan_its_text_and_its_json(database18: str, tmp_path: Path) -> None:
    """By its name, which nothing else knows."""
    loads = Loads(database18)
    loads.execute("CREATE TABLE t (a int)")
    with loads.loader() as loader:
        job = LoadJob(targets=(target(write_to(tmp_path / "rows.csv", "a\n1\n")),))
        foreseen = loader.foresee(loader.plan(job))
        assert foreseen.steps["pages"] == PagesPlan(now=0)
        assert "0 pages now" in describe_plan(foreseen)
        steps = plan_object(foreseen)["steps"]
    assert isinstance(steps, dict)
    assert steps["pages"] == {"now": 0}


def test_a_step_is_told_of_a_load_that_fails(database18: str, tmp_path: Path, pages: Pages) -> None:
    """It can undo what it did."""
    loads = Loads(database18)
    loads.execute("CREATE TABLE t (a int)")
    with pytest.raises(DataError):
        loads.run(target(write_to(tmp_path / "rows.csv", "a\nx\n")), rules=LoadRules(retry_for=0.0))
    assert pages.has_failed
