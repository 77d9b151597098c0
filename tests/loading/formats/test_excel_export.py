"""An export of Excel loads with the options that penstock itself has named."""

from __future__ import annotations

import re
import shlex
from datetime import date
from decimal import Decimal
from typing import TYPE_CHECKING

import pytest

from penstock.core.errors import DataError
from penstock.core.values.dialect import DialectOptions
from penstock.core.values.job import LoadJob
from support.loads import Loads
from support.typed import make_target, types_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from support.command import Finished

# As Excel saves it in Germany: by its codec for Western Europe, with semicolons, and first a line that names them.
_EXPORT = """sep=;
Kunde;Preis;Menge;Verkauft am
Müller & Söhne (€);1.234,50;3;31.12.2025
"Jürgen ""Jo"" Groß";-0,99;;01.02.2026
Café Œuvre;12;1000;2.2.2026
"""


def test_an_export_loads_with_the_options_of_its_hints(
    penstock: Callable[..., Finished], ledger18: str, tmp_path: Path
) -> None:
    """Each step gives what the one before has named: the encoding, the decimal comma, the order of dates."""
    path = tmp_path / "export.csv"
    path.write_bytes(_EXPORT.replace("\n", "\r\n").encode("cp1252"))
    loads = Loads(ledger18)
    with loads.loader() as loader:
        with pytest.raises(DataError) as caught:
            loader.plan(LoadJob(targets=(make_target(path),)))
        named = re.search(r"--encoding=(\w+)", caught.value.hint or "")
        assert named is not None
        job = LoadJob(targets=(make_target(path, dialect=DialectOptions(encoding=named[1])),))
        notices = loader.plan(job).notices
    assert {each.code for each in notices} == {"separator-line", "notation"}
    hints = [each.hint or "" for each in notices if each.code == "notation"]
    options = shlex.split(" ".join(hint.removeprefix("Use ").partition(" to read them so")[0] for hint in hints))
    assert options == ["--decimal-comma", "preis", "--thousands", "preis=.", "--date-order", "verkauft am=dmy"]
    typed = ["--create", "--types", "infer", "--encoding", named[1]]
    done = penstock("load", str(path), "--to", ledger18, "--into", "t", *typed, *options)
    assert done.code == 0, done.err
    assert "notation" not in done.err
    assert types_of(loads) == ["text", "numeric", "integer", "date"]
    assert loads.rows() == [
        ("Café Œuvre", Decimal(12), 1000, date(2026, 2, 2)),
        ('Jürgen "Jo" Groß', Decimal("-0.99"), None, date(2026, 2, 1)),
        ("Müller & Söhne (€)", Decimal("1234.50"), 3, date(2025, 12, 31)),
    ]
