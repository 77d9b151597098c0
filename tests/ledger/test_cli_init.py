"""penstock init: a ledger that several roles share, and the error for a role without rights to it."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from support.loads import Loads

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from support.command import Finished

    Run = Callable[..., Finished]


@pytest.fixture
def admin(database: str) -> Loads:
    """Provide a superuser's loads into a database with a table that everybody may fill, on each version."""
    return Loads(database, setup="CREATE TABLE t (a int PRIMARY KEY, b text); GRANT ALL ON t TO public")


@pytest.fixture
def roles(admin: Loads) -> Iterator[tuple[str, str]]:
    """Provide two roles that have nothing to do with each other."""
    ann, bob = (f"{name}_{secrets.token_hex(4)}" for name in ("ann", "bob"))
    admin.execute(f"CREATE ROLE {ann} LOGIN; CREATE ROLE {bob} LOGIN")
    yield ann, bob
    admin.execute(f"DROP OWNED BY {ann}, {bob} CASCADE; DROP ROLE {ann}, {bob}")


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    """Provide two files for the table."""
    paths = [tmp_path / f"{number}.csv" for number in (1, 2)]
    for path in paths:
        path.write_text(f"a,b\n{path.stem},x\n")
    return [str(path) for path in paths]


def _login(admin: Loads, role: str) -> tuple[str, ...]:
    return ("--to", make_conninfo(admin.conninfo, user=role))


@pytest.mark.parametrize(
    ("mode", "grants"), [((), "--grant|{}, {}"), (("--mode", "upsert", "--key", "a"), "--grant|{}|--grant|{}")]
)
def test_ledger_is_shared_and_loads_are_not(
    penstock: Run, admin: Loads, roles: tuple[str, str], files: list[str], mode: tuple[str, ...], grants: str
) -> None:
    """Both load, also by a merge; each sees the other's load, and cannot forget it."""
    ann, bob = roles
    assert penstock("init", *grants.format(ann, bob).split("|"), "--to", admin.conninfo).code == 0
    for role, path in zip(roles, files, strict=True):
        assert penstock("doctor", "--into", "t", *_login(admin, role)).code == 0
        finished = penstock("load", path, "--into", "t", *mode, *_login(admin, role))
        assert finished.code == 0, finished.err
    listed = penstock("loads", *_login(admin, bob), "--json").object["loads"]
    assert [load["owner"] for load in listed] == [ann, bob]
    refused = penstock("loads", "forget", listed[0]["load_id"], "--keep-rows", *_login(admin, bob))
    assert (refused.code, f'it belongs to role "{ann}"' in refused.err) == (6, True)


def test_ledger_is_the_database_owners(penstock: Run, admin: Loads, roles: tuple[str, str], files: list[str]) -> None:
    """The database's owner owns the ledger, whoever runs init.

    A member of the owner may run it. Another role gets an error that names the owner. A second init adds roles.
    """
    ann, bob = roles
    name = psycopg.conninfo.conninfo_to_dict(admin.conninfo)["dbname"]
    admin.execute(f"ALTER DATABASE {name} OWNER TO {ann}")
    try:
        stranger = penstock("init", *_login(admin, bob))
        assert (stranger.code, f'Run it as "{ann}"' in stranger.err) == (6, True)
        for options in ((), ("--grant", bob)):
            assert penstock("init", *options, "--to", admin.conninfo).code == 0
        assert admin.execute("SELECT nspowner::regrole::text FROM pg_namespace WHERE nspname = 'penstock'") == [(ann,)]
        assert penstock("load", files[0], "--into", "t", *_login(admin, bob)).code == 0
        assert penstock("load", files[1], "--into", "t", *_login(admin, ann)).code == 0
    finally:
        admin.execute(f"ALTER DATABASE {name} OWNER TO postgres; REASSIGN OWNED BY {ann} TO postgres")


@pytest.mark.parametrize("part", ["schema", "tables"])
def test_ledger_of_one_role_is_shared_after_a_change_of_its_owner(
    penstock: Run, admin: Loads, roles: tuple[str, str], files: list[str], part: str
) -> None:
    """Nobody but that role would trust it: init says by which statements, to the role itself and to the owner."""
    ann, bob = roles
    if part == "schema":
        (name,) = admin.execute("SELECT current_database()")[0]
        admin.execute(f"GRANT CREATE ON DATABASE {name} TO {ann}")
    else:
        admin.execute(f"CREATE SCHEMA penstock; GRANT ALL ON SCHEMA penstock TO {ann}")
    assert penstock("load", files[0], "--into", "t", *_login(admin, ann)).code == 0
    assert penstock("init", "--grant", ann, *_login(admin, ann)).code == (0 if part == "schema" else 6)
    for where in (_login(admin, ann), ("--to", admin.conninfo)):
        refused = penstock("init", "--grant", bob, *where, "--json")
        assert (refused.code, f'belongs to role "{ann}"' in refused.err) == (6, True)
    hint = str(refused.object["error"]["hint"])
    assert f"penstock init --grant {bob},{ann}" in hint
    admin.execute(hint[hint.index("ALTER") : hint.rindex(";")])
    assert penstock("init", "--grant", f"{bob},{ann}", "--to", admin.conninfo).code == 0
    for role, path in zip((ann, bob), files, strict=True):
        assert penstock("load", path, "--into", "t", *_login(admin, role)).code == 0


def test_init_plan_is_sql_that_does_the_same(
    penstock: Run, admin: Loads, roles: tuple[str, str], files: list[str]
) -> None:
    """It makes nothing by itself; psql makes the same ledger of it."""
    planned = penstock("init", "--grant", roles[0], "--plan", "--to", admin.conninfo)
    assert not admin.has_table("penstock.loads")
    admin.execute(planned.out)
    assert penstock("load", files[0], "--into", "t", *_login(admin, roles[0])).code == 0


def test_role_without_rights_is_led_to_init(
    penstock: Run, admin: Loads, roles: tuple[str, str], files: list[str]
) -> None:
    """By doctor, by a load without a ledger, and by one that is denied; no word of psycopg or INSERT on the table."""
    where = _login(admin, roles[0])
    for _ in range(2):
        assert f"penstock init --grant {roles[0]}" in " ".join(penstock("doctor", *where).out.split())
        refused = penstock("load", files[0], "--into", "t", *where)
        assert (refused.code, "penstock init --grant" in refused.err) == (6, True)
        assert not {"Pipeline", "INSERT"} & set(refused.err.replace(">", " ").split())
        assert "ignored terminating" not in refused.err
        assert penstock("init", "--to", admin.conninfo).code == 0
        admin.execute(f"GRANT USAGE ON SCHEMA penstock TO {roles[0]}")
