"""The ledger has one version; what has another is refused."""

from __future__ import annotations

import pytest

from penstock.errors import TargetError
from penstock.server.connect.connection import ConnectionFactory
from penstock.server.ledger import Ledger
from support.loads import Loads


@pytest.fixture
def loads(database: str) -> Loads:
    """Provide loads into an empty database."""
    return Loads(database)


@pytest.mark.parametrize("version", [1, 999])
def test_ledger_of_another_version_is_refused_by_name(loads: Loads, version: int) -> None:
    """Nothing of it is read or written, whatever its policies are; the hint says what can be done."""
    with ConnectionFactory(loads.conninfo).connect() as connection:
        Ledger().ensure(connection)
        loads.execute(f"COMMENT ON TABLE penstock.loads IS 'penstock ledger, version {version}'")
        loads.execute("CREATE POLICY former ON penstock.loads USING (true)")
        with pytest.raises(TargetError, match=f'"penstock" has version {version}, and this penstock') as caught:
            Ledger().ensure(connection)
    assert "--ledger-schema" in str(caught.value.hint)
