"""What follows a load, as its plan and its outcome report it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import psycopg
import pytest

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from support.command import Finished

    Run = Callable[..., Finished]


@pytest.fixture
def numbers(tmp_path: Path) -> str:
    """Provide a file of a hundred records."""
    path = tmp_path / "numbers.csv"
    path.write_text("a\n" + "".join(f"{number}\n" for number in range(100)))
    return str(path)


def test_outcome_tells_the_seconds_of_vacuum_apart(penstock: Run, database18: str, numbers: str) -> None:
    """As text and as an object; --no-vacuum leaves both out."""
    common = ("load", numbers, "--into", "t", "--create", "--to", database18)
    assert penstock(*common).out.splitlines()[1].startswith("vacuumed and analyzed public.t in ")
    found = penstock(*common, "--again", "--json").object["steps"]["upkeep"]
    assert found["vacuum_s"] > 0
    assert (found["vacuumed"], found["analyzed"], found["checkpoint_s"]) == (["public.t"], ["public.t"], 0)
    quiet = penstock(*common, "--again", "--no-vacuum")
    assert not any("vacuum" in line for line in quiet.out.splitlines())


def test_checkpoint_is_told(penstock: Run, database18: str, numbers: str) -> None:
    """Where it was asked for."""
    shown = penstock("load", numbers, "--into", "t", "--create", "--to", database18, "--no-vacuum", "--checkpoint")
    assert shown.out.splitlines()[1].startswith("wrote a checkpoint in ")


def test_plan_says_what_follows_and_why(penstock: Run, database18: str, numbers: str) -> None:
    """Before anything is done."""
    common = ("load", numbers, "--into", "t", "--create", "--to", database18, "--plan")
    shown = penstock(*common)
    assert "then  VACUUM (ANALYZE) of tables that got rows, with FREEZE if they had none\n" in shown.out
    assert "no CHECKPOINT: the server's settings are not changed" in shown.out
    shown = penstock(*common, "--no-vacuum", "--checkpoint")
    assert "then  no VACUUM: --no-vacuum\n" in shown.out
    assert "then  CHECKPOINT: --checkpoint\n" in shown.out
    vacuum = penstock(*common, "--json").object["steps"]["upkeep"]["vacuum"]
    assert vacuum == "VACUUM (ANALYZE) of tables that got rows, with FREEZE if they had none"


def test_plan_names_triggers_with_their_cost(penstock: Run, database18: str, numbers: str) -> None:
    """They are kept, and who wonders why a load is slow reads it here."""
    with psycopg.connect(database18, autocommit=True) as connection:
        connection.execute("CREATE TABLE t (a int)")
        connection.execute("CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN new; END'")
        connection.execute("CREATE TRIGGER stamp BEFORE INSERT ON t FOR EACH ROW EXECUTE FUNCTION f()")
        connection.execute("CREATE TRIGGER audit AFTER INSERT ON t EXECUTE FUNCTION f()")
    shown = penstock("load", numbers, "--into", "t", "--to", database18, "--plan")
    assert "triggers  kept: stamp ON public.t; fires about 100 times, once for each row\n" in shown.out
    assert "triggers  kept: audit ON public.t; fires once for each COPY command\n" in shown.out


def test_plan_says_what_is_switched_off(penstock: Run, database18: str, numbers: str) -> None:
    """And that it comes back."""
    with psycopg.connect(database18, autocommit=True) as connection:
        connection.execute("CREATE TABLE t (a int)")
        connection.execute("CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN new; END'")
        connection.execute("CREATE TRIGGER stamp BEFORE INSERT ON t FOR EACH ROW EXECUTE FUNCTION f()")
    options = ("--triggers", "disable", "--autovacuum", "pause")
    shown = penstock("load", numbers, "--into", "t", "--to", database18, "--plan", *options)
    assert "triggers  disabled during the load, for other sessions too: stamp ON public.t\n" in shown.out
    assert "autovacuum  paused for the table and its TOAST table, then restored\n" in shown.out


@pytest.mark.parametrize("option", ["--triggers", "--autovacuum"])
def test_unknown_word_for_a_switch_is_refused(penstock: Run, numbers: str, option: str) -> None:
    """Before anything is looked at."""
    finished = penstock("load", numbers, "--into", "t", option, "maybe")
    assert finished.code == 2
    assert finished.err.startswith(f'error: invalid value "maybe" for {option}')
