"""The plot of penstock bench commits: what it shows, and what is refused before anything is measured."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from benchmarks.recorded import read_commits

from penstock.core.errors import SourceError, UsageError
from penstock.core.host.machine import read_machine
from penstock_lab.bench.commits.plan import Size, SizeResult
from penstock_lab.bench.commits.run import Check, CommitsResult, CommitsTargetResult
from penstock_lab.bench.commits.table import MARK, as_object, chart, describe_rounds, overview, rows
from penstock_lab.bench.plot import check_plot, draw_plot
from support.command import run_process

if TYPE_CHECKING:
    from pathlib import Path

_CHECK = Check(rows=1, commits=1, counted_rows=1, counted_commits=1, background_commits_per_s=0.0)


def _result(name: str = "quorum") -> CommitsResult:
    sizes = (
        SizeResult(size=Size(rows_per_commit=1_000, rows=1_000, total_rows=1_000), runs_s=(2.0, 1.0), bare_s=4.0),
        SizeResult(size=Size(rows_per_commit=1, rows=10, total_rows=1_000), runs_s=(0.2, 0.1), bare_s=0.4),
    )
    target = CommitsTargetResult(name=name, postgresql="18.4", check=_CHECK, sizes=sizes)
    return CommitsResult(rows=1_000, machine=read_machine(), targets=(target,))


def test_lines_are_multiples_of_their_own_largest_batch() -> None:
    """With their spread; the published ones are marked, and their source is named."""
    plot = chart(_result())
    measured, published = plot.lines
    assert [(point.median, point.low, point.high) for point in measured.points] == [(1, 0.5, 2), (10, 5, 20)]
    assert [point.is_scaled for point in measured.points] == [False, True]
    assert (measured.is_published, published.is_published) == (False, True)
    assert published.name.startswith("published: Aurora")
    assert published.points[0].median == 1
    assert any("dbi-services.com" in note for note in plot.notes)


def test_the_round_without_a_sampler_is_in_median_and_spread() -> None:
    """It was often the slowest."""
    (target,) = _result().targets
    assert [(run.median_s, max(run.totals_s)) for run in target.sizes] == [(2.0, 4.0), (20.0, 40.0)]
    assert "one of them without the sampler" in describe_rounds(_result())


def test_what_was_extrapolated_is_marked_in_table_and_object() -> None:
    """Seconds of fewer rows, and what is a multiple of them; the plot draws them hollow."""
    whole, scaled = rows(_result().targets[0])
    assert not any(MARK in cell for cell in whole)
    assert [cell for cell in scaled if MARK in cell] == ["20.00*", "10.00*", "40.00*", "40.00*", "10.00*"]
    assert overview(_result())[1:] == [("1,000", "1.00 (0.50-2.00)", "1.31"), ("1", "10.0* (5.00-20.0)", "-")]
    sizes = json.loads(json.dumps(as_object(_result())))["targets"][0]["sizes"]
    assert [size["is_scaled"] for size in sizes] == [False, True]


def test_a_result_is_read_back_from_its_object() -> None:
    """So that a record's tables and plot can be computed again."""
    assert read_commits(json.loads(json.dumps(as_object(_result())))) == _result()


@pytest.mark.part("rest")
def test_the_ending_decides_the_format(tmp_path: Path) -> None:
    """Both are whole files, and nothing else is left."""
    for name in ("plot.svg", "plot.PNG"):
        draw_plot(tmp_path / name, chart(_result()))
    drawn = (tmp_path / "plot.svg").read_text(encoding="utf-8")
    assert drawn.startswith("<?xml")
    assert drawn.rstrip().endswith("</svg>")
    assert (tmp_path / "plot.PNG").read_bytes().startswith(b"\x89PNG")
    assert len(list(tmp_path.iterdir())) == 2


def test_names_of_servers_are_no_formulas(tmp_path: Path) -> None:
    """Between dollars matplotlib would take them for mathematics."""
    draw_plot(tmp_path / "plot.svg", chart(_result(r"$\nonsense{$:5432/" + "x" * 100)))
    assert (tmp_path / "plot.svg").stat().st_size > 0


def test_what_cannot_be_drawn_is_refused(tmp_path: Path) -> None:
    """Another ending, a folder that is missing, a folder in the file's place."""
    (tmp_path / "folder.svg").mkdir()
    with pytest.raises(UsageError, match="cannot draw"):
        check_plot(tmp_path / "plot.pdf")
    with pytest.raises(SourceError, match="could not write"):
        check_plot(tmp_path / "missing" / "plot.svg")
    with pytest.raises(SourceError, match="will not replace"):
        check_plot(tmp_path / "folder.svg")


def test_a_refused_plot_ends_the_command_before_anything_is_brought_up(tmp_path: Path) -> None:
    """An hour of measuring would be lost."""
    finished = run_process(
        "bench", "commits", "--quick", "--plot", "plot.pdf", environment={"PENSTOCK_HOME": str(tmp_path)}
    )
    assert finished.code == 2
    assert "ends in .svg or .png" in finished.err
    assert not list(tmp_path.iterdir())


def test_without_matplotlib_the_extra_is_named(tmp_path: Path) -> None:
    """Before anything is measured; all else goes without it."""
    home = tmp_path / "home"
    program = (
        "import sys; sys.modules['matplotlib'] = None\n"
        "from penstock.cli.main import main\n"
        f"sys.exit(main(['bench', 'commits', '--quick', '--plot', {str(tmp_path / 'plot.svg')!r}]))"
    )
    finished = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PENSTOCK_HOME": str(home)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert finished.returncode == 2
    assert "pip install 'pg-penstock[report]'" in finished.stderr
    assert not home.exists()
