"""--plan and doctor say what the load then does: by the ledger, which they read and do not make."""

from __future__ import annotations

from typing import TYPE_CHECKING

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from penstock.core.errors import DataError, TargetError
from support.loads import Loads, target

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from support.command import Finished

    Run = Callable[..., Finished]


@pytest.fixture
def loads(database18: str) -> Loads:
    """Provide a database with a table."""
    return Loads(database18, setup="CREATE TABLE t (a int, b text)")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Provide a folder of two files."""
    folder = tmp_path / "files"
    folder.mkdir()
    (folder / "1.csv").write_text("a,b\n1,x\n")
    (folder / "2.csv").write_text("a,b\n2,y\n")
    return folder


@pytest.fixture
def clerk(database18: str) -> Iterator[str]:
    """Provide the database as a role that has been granted nothing."""
    with psycopg.connect(database18, autocommit=True) as admin:
        name = f"clerk_{admin.info.backend_pid}"
        admin.execute(f"CREATE ROLE {name} LOGIN")
        yield make_conninfo(database18, user=name)
        admin.execute(f"DROP OWNED BY {name} CASCADE")
        admin.execute(f"DROP ROLE {name}")


def _actions(shown: Finished) -> list[str]:
    return [item["action"] for item in shown.object["targets"][0]["objects"]]


@pytest.mark.part("rest")
def test_plan_skips_what_the_load_would_skip(penstock: Run, loads: Loads, folder: Path) -> None:
    """Before there is a ledger, which a plan does not make, and after."""
    where = ("--into", "t", "--to", loads.conninfo)
    before = penstock("load", str(folder), *where, "--plan", "--json")
    assert (before.object["ledger"]["exists"], _actions(before)) == (False, ["new", "new"])
    assert not loads.has_table("penstock.loads")
    assert penstock("load", str(folder / "1.csv"), *where).code == 0
    assert _actions(penstock("load", str(folder), *where, "--plan", "--json")) == ["skip", "new"]
    text = penstock("load", str(folder), *where, "--plan").out
    assert "skips 1 of 2 objects, which are loaded already" in text
    assert _actions(penstock("load", str(folder), *where, "--plan", "--json", "--again")) == ["new", "new"]
    assert loads.count() == 1


def test_plan_of_a_table_to_be_created_reads_the_ledger_too(penstock: Run, loads: Loads, folder: Path) -> None:
    """The table's oid is not known yet, and the dropped one had another: the file is new to it."""
    command = ("load", str(folder), "--into", "made", "--create", "--to", loads.conninfo)
    assert penstock(*command).code == 0
    loads.execute("DROP TABLE made")
    assert _actions(penstock(*command, "--plan", "--json")) == ["new", "new"]
    assert penstock(*command).code == 0
    assert loads.count("made") == 2


def test_plan_names_the_load_that_would_be_resumed(penstock: Run, loads: Loads, tmp_path: Path) -> None:
    """Some batches are in, and one has a bad record."""
    path = tmp_path / "numbers.csv"
    path.write_text("a,b\n" + "".join(f"{number},x\n" for number in range(2000)) + "bad,x\n")
    with pytest.raises(DataError):
        Loads(loads.conninfo, piece_bytes=509, chunk_bytes=500).run(target(path), batch_bytes=4000)
    ((load_id,),) = loads.execute("SELECT id::text FROM penstock.loads")
    shown = penstock("load", str(path), "--into", "t", "--to", loads.conninfo, "--plan", "--json")
    assert (shown.object["ledger"]["resumes"], _actions(shown)) == (load_id, ["resume"])


@pytest.mark.part("rest")
def test_plan_ends_as_the_load_would(penstock: Run, loads: Loads, folder: Path) -> None:
    """A file that has changed, and a table that was emptied: exit code 6 for both."""
    command = ("load", str(folder), "--into", "t", "--to", loads.conninfo)
    assert penstock(*command).code == 0
    loads.execute("TRUNCATE t")
    planned, loaded = penstock(*command, "--plan"), penstock(*command)
    assert (planned.code, planned.err.splitlines()[-3:]) == (loaded.code, loaded.err.splitlines()[-3:])
    assert (planned.code, planned.out) == (6, "")
    loads.execute("INSERT INTO t VALUES (1)")
    (folder / "2.csv").write_text("a,b\n3,z\n")
    assert penstock(*command, "--plan").code == penstock(*command).code == 6
    assert penstock("doctor", "--for", *command[1:]).code == 9
    assert penstock("doctor", "--for", *command[1:], "--changed", "load").code == 0


def test_role_that_may_make_no_ledger_is_told_by_the_plan(
    penstock: Run, loads: Loads, folder: Path, clerk: str
) -> None:
    """The plan reports it in the same words as the load."""
    loads.execute("GRANT ALL ON t TO public")
    command = ("load", str(folder), "--into", "t", "--to", clerk)
    planned, loaded = penstock(*command, "--plan"), penstock(*command)
    assert planned.code == loaded.code == 6
    assert "cannot create the ledger: permission denied for database" in planned.err
    assert "cannot create the ledger: permission denied for database" in loaded.err


@pytest.mark.part("rest")
def test_doctor_the_plan_and_the_load_refuse_with_the_same_words(
    penstock: Run, loads: Loads, folder: Path, clerk: str
) -> None:
    """Message, detail and hint are those of one check, whoever asks."""
    loads.execute("GRANT ALL ON t TO public")
    where = ("--into", "t", "--to", clerk)
    for source in ("no right on the database", "publication"):
        if source == "publication":
            loads.execute("CREATE PUBLICATION everything FOR ALL TABLES")
            where = ("--into", "t", "--to", loads.conninfo)
        shown = penstock("doctor", *where, "--json").object["findings"]
        (found,) = (each for each in shown if each["severity"] == "refusal")
        for more in (("--plan",), ()):
            refused = penstock("load", str(folder), *where, *more)
            assert refused.code == 6
            assert all(found[part] in refused.err for part in ("claim", "detail", "remedy"))


def test_doctor_takes_the_loads_options(penstock: Run, loads: Loads, folder: Path) -> None:
    """What the load needs --set for is no refusal with it."""
    loads.execute("ALTER TABLE t ADD c text NOT NULL")
    command = ("doctor", "--for", str(folder), "--into", "t", "--to", loads.conninfo)
    assert penstock(*command).code == 9
    ready = penstock(*command, "--set", "c=x")
    assert ready.code == 0, ready.out
    assert penstock("doctor", "--for", str(folder), "--into", "made", "--create", "--to", loads.conninfo).code == 0


@pytest.mark.part("rest")
def test_doctor_refuses_where_a_staging_table_is_denied(penstock: Run, loads: Loads, folder: Path, clerk: str) -> None:
    """Row security of the table leads through one, in the ledger's schema; doctor's remedy makes the load go."""
    where = ("--into", "t", "--to", clerk)
    assert penstock("load", str(folder / "1.csv"), "--into", "t", "--to", loads.conninfo).code == 0
    role = psycopg.conninfo.conninfo_to_dict(clerk)["user"]
    loads.execute(f"GRANT USAGE ON SCHEMA penstock TO {role}; GRANT INSERT, SELECT ON t TO {role}")
    loads.execute(f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA penstock TO {role}")
    loads.execute("ALTER TABLE t ENABLE ROW LEVEL SECURITY; CREATE POLICY small ON t USING (a < 10)")
    shown = penstock("doctor", *where, "--json")
    assert shown.code == 9
    planned, loaded = (penstock("load", str(folder / "2.csv"), *where, *more) for more in (("--plan",), ()))
    assert planned.code == loaded.code == 6
    assert "permission denied for schema penstock" in planned.err
    (remedy,) = (item["remedy"] for item in shown.object["findings"] if item["severity"] == "refusal")
    loads.execute(remedy)
    assert penstock("doctor", *where).code == 0
    assert penstock("load", str(folder / "2.csv"), *where).code == 0


@pytest.mark.part("rest")
def test_read_only_default_is_told_before(penstock: Run, loads: Loads, folder: Path) -> None:
    """By the plan and by doctor, and --read-write is said by both."""
    read_only = make_conninfo(loads.conninfo, options="-c default_transaction_read_only=on")
    where = ("--into", "t", "--to", read_only)
    planned = penstock("load", str(folder), *where, "--plan")
    assert (planned.code, "cannot load in read-only transactions" in planned.out) == (9, True)
    assert penstock("doctor", *where).code == 9
    assert penstock("load", str(folder), *where).code == 6
    assert penstock("doctor", *where, "--read-write").code == 0
    assert penstock("load", str(folder), *where, "--read-write").code == 0
    assert loads.count() == 2


@pytest.mark.part("rest")
@pytest.mark.parametrize("record", ["3", "3,z,more", "3,z,"])
def test_plan_refuses_records_of_another_number_of_fields(
    penstock: Run, loads: Loads, folder: Path, record: str
) -> None:
    """At the beginning of any file that is to be read, before there is a ledger and after; rejects are no refusal."""
    (folder / "2.csv").write_text(f"a,b\n2,y\n{record}\n")
    command = ("load", str(folder), "--into", "t", "--to", loads.conninfo)
    for _ in range(2):
        refused = penstock(*command, "--plan")
        assert refused.code == DataError.exit_code
        assert "2.csv line 3" in refused.err
        assert penstock(*command, "--plan", "--on-error", "reject").code == 0
        assert penstock(*command).code == DataError.exit_code
        assert penstock("load", str(folder / "1.csv"), *command[2:]).code == 0


@pytest.mark.part("rest")
@pytest.mark.parametrize(("count", "options"), [(1601, ()), (1599, ("--mode", "truncate", "--atomic"))])
def test_plan_refuses_more_columns_than_a_table_has(
    penstock: Run, loads: Loads, tmp_path: Path, count: int, options: tuple[str, ...]
) -> None:
    """Of the table to be created, and of its staging table, which has three of its own."""
    path = tmp_path / "wide.csv"
    path.write_text("".join(",".join(f"{name}{at}" for at in range(count)) + "\n" for name in ("c", "")))
    command = ("load", str(path), "--into", "wide", "--create", "--to", loads.conninfo, *options)
    assert penstock(*command, "--plan").code == TargetError.exit_code
    assert penstock(*command).code == TargetError.exit_code
