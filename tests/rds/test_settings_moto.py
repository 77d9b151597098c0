"""Parameter groups on moto's server, which keeps parameters and tags and applies nothing."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from psycopg import sql

from penstock.cli.main import main
from penstock.core.catalogue.settings import reload
from penstock.rds.parameter_groups import RdsParameterGroups
from support.moto_rds import applied_groups

if TYPE_CHECKING:
    from collections.abc import Callable

    from rds.conftest import MotoRds


@pytest.mark.part("rest")
def test_parameters_and_tags_of_a_group(moto_rds: MotoRds) -> None:
    """As moto takes them over the wire."""
    groups = RdsParameterGroups(moto_rds.instance)
    group = groups.describe()
    assert (group.name, group.identifier, group.owner) == ("loads16", "orders", "instance")
    assert set(group.users or ()) == {"orders", "orders-copy"}
    groups.write(group, {"max_wal_size": "4096"})
    groups.write_tags(group, {"penstock:lease:1": "by=host_1 for=load_2", "penstock:prior:max_wal_size": "was= ours="})
    assert groups.read_values(group)["max_wal_size"] == "4096"
    assert groups.read_tags(group)["penstock:lease:1"] == "by=host_1 for=load_2"
    groups.remove_tags(group, ["penstock:lease:1", "penstock:prior:max_wal_size"])
    assert groups.read_tags(group) == {}
    groups.close()


def test_reset_of_one_parameter_leaves_the_others(moto_rds: MotoRds) -> None:
    """By default RDS resets the whole group."""
    with applied_groups(lambda _: None):
        groups = RdsParameterGroups(moto_rds.instance)
        group = groups.describe()
        before = groups.read_values(group)
        groups.write(group, {"checkpoint_timeout": "900", "wal_compression": "1"})
        groups.write(group, {"wal_compression": None})
        assert groups.read_values(group) == {**before, "checkpoint_timeout": "900"}
        groups.write(group, {"checkpoint_timeout": None})
        assert groups.read_values(group) == before
        groups.close()


@pytest.mark.part("rest")
def test_restore_resets_what_apply_has_set(
    reach: Callable[..., str], capfd: pytest.CaptureFixture[str], moto_rds: MotoRds
) -> None:
    """The group had no value of its own, so that the parameter is reset, and the server has its earlier value again."""
    conninfo = reach()
    with psycopg.connect(conninfo, autocommit=True) as admin, applied_groups(partial(_apply, admin)):
        admin.execute("CREATE ROLE rds_superuser")
        before = admin.execute("SHOW checkpoint_timeout").fetchone()
        assert main(["settings", "apply", "checkpoint_timeout=20min", "--shared-group", "--to", conninfo]) == 0
        assert admin.execute("SHOW checkpoint_timeout").fetchone() == ("20min",) != before
        assert main(["settings", "restore", "--to", conninfo]) == 0
        assert admin.execute("SHOW checkpoint_timeout").fetchone() == before
    groups = RdsParameterGroups(moto_rds.instance)
    assert "checkpoint_timeout" not in groups.read_values(groups.describe())
    groups.close()


def _apply(admin: psycopg.Connection[Any], values: dict[str, str | None]) -> None:
    """Change the settings of a server as RDS does if a parameter of its group is changed, and wait until they apply."""
    for name, value in values.items():
        target = sql.SQL("ALTER SYSTEM SET {} = DEFAULT" if value is None else "ALTER SYSTEM SET {} = {}")
        admin.execute(target.format(sql.Identifier(name), *([] if value is None else [sql.Literal(value)])))
    reload(admin)


@pytest.mark.part("rest")
def test_group_that_is_shared_is_told(
    reach: Callable[..., str], capfd: pytest.CaptureFixture[str], moto_rds: MotoRds
) -> None:
    """The endpoint decides that AWS is asked, and SQL that the server is RDS's; orders-copy has the group too."""
    conninfo = reach()
    with psycopg.connect(conninfo, autocommit=True) as admin:
        admin.execute("CREATE ROLE rds_superuser")
    assert main(["settings", "diff", "max_wal_size=8GB", "--to", conninfo]) == 0
    assert "cannot change settings: parameter group loads16 is shared by" in capfd.readouterr().out
    assert main(["settings", "apply", "max_wal_size=8GB", "--to", conninfo]) == 6
    assert "--shared-group" in capfd.readouterr().err


@pytest.mark.part("rest")
def test_prepared_group_is_made_and_attached_to_nothing(
    reach: Callable[..., str], capfd: pytest.CaptureFixture[str], moto_rds: MotoRds
) -> None:
    """The command that attaches it is printed."""
    assert main(["settings", "prepare-rds", "loads16-new", "--to", reach()]) == 0
    out, err = capfd.readouterr()
    assert out == (
        "aws rds modify-db-instance --db-instance-identifier orders --db-parameter-group-name loads16-new "
        "--apply-immediately --region eu-west-1\n"
    )
    assert "reboot" in err
