"""`penstock report`: a page of recordings, as a parser and as a browser read it."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import unicodedata
from html.parser import HTMLParser
from typing import TYPE_CHECKING, Any

import pytest

from penstock.core.values.accounts import (
    FileOutcome,
    LoadAccounts,
    LoadConditions,
    LoadCounts,
    LoadDetails,
    ReaderSeconds,
    SessionSeconds,
)
from penstock.core.values.device import VolumeLimits
from penstock.report import timeline
from penstock.watch.recordings import Recorder
from support.made_samples import database, recording_of, sample, session

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from penstock.watch.values import Recording
    from support.command import Finished

HOSTILE = (
    """</td></script><script>document.title='broken'</script><img src=x onerror="document.title='broken'">'\ud800"""
)


def load_of(name: str) -> LoadCounts:
    """Return what a load kept, with a name wherever a user or a server gives one."""
    accounts = LoadAccounts(
        elapsed_s=20,
        rows_s=10,
        sessions=SessionSeconds(sending_s=10),
        session_count=1,
        readers=ReaderSeconds(reading_s=1),
        reader_count=1,
        client_cpu_s=1,
        client_cpus=2,
        bytes_read=1,
        bytes_copied=10_000_000,
        rows=1_000,
        steps_s={name: 10.0},
    )
    setting = LoadConditions(indexes=(name,), triggers=(name,), foreign_keys=(name,), sessions_why=name)
    files = (FileOutcome(uri=f"{name}.csv", table=name, rows=1_000, seconds=2.0),)
    details = LoadDetails(files=files, plan=((f"table {name}", "append"),), done=((f"rebuilt {name}",), (name, "3 s")))
    return LoadCounts(accounts=accounts, setting=setting, details=details)


def recorded(name: str = "orders", *, iops: int = 700, count: int = 60, **header: Any) -> Recording:
    """Return a recording of a device with some requests per second and 6 of them in its queue."""
    samples = []
    for t in range(count):
        device = {
            "tablespace": "pg_default", "device": name, "kind": "local", "at_s": float(t),
            "reads": 0, "read_bytes": 0, "read_s": 0.0, "writes": iops * t, "write_bytes": 8192 * iops * t,
            "write_s": 0.1 * t, "busy_s": float(t), "queue_s": 6.0 * t, "free_bytes": 1, "size_bytes": 2,
        }  # fmt: skip
        counters = {
            **database(t, 100 * t),
            "host_devices": (device,),
            "pg_stat_checkpointer": ({"num_requested": t // 30},),
        }
        waits = session(f"IO:{name}", query=f"COPY {name}", application=name)
        samples.append(sample(t, waits, wal=1_000_000 * t, counters=counters, host_busy_cpus=1.0))
    recording = recording_of(samples, settings={"max_wal_size": name}, **header)
    recording.load = load_of(name)
    return recording


def write(path: Path, recording: Recording) -> str:
    """Write a recording, and return its path."""
    with Recorder(path, recording.header) as recorder:
        for each in recording.samples:
            recorder.write(each)
        if recording.load is not None:
            recorder.write_load(recording.load)
    return str(path)


class Page(HTMLParser):
    """The elements, the attributes and the text of a page."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.elements: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.words = ""
        self.feed(html)
        self.text = " ".join(self.words.split())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note an element."""
        self.elements.append(tag)
        self.attributes += attrs

    def handle_data(self, data: str) -> None:
        """Note a text."""
        self.words += f" {data}"


def report(penstock: Callable[..., Finished], folder: Path, *recordings: Recording) -> str:
    """Return the page of some recordings."""
    paths = [write(folder / f"{number}.recording", each) for number, each in enumerate(recordings)]
    finished = penstock("report", *paths, "-o", str(folder / "page.html"))
    assert (finished.code, finished.err) == (0, "")
    return (folder / "page.html").read_text("utf-8")


@pytest.mark.part("rest")
def test_page_begins_with_the_verdict_and_has_all_that_was_recorded(
    penstock: Callable[..., Finished], tmp_path: Path
) -> None:
    """Charts with their limits, each with a table; files, plan, and what was done."""
    html = report(penstock, tmp_path, recorded(volume=VolumeLimits(iops=750, bytes_per_s=10_000_000)))
    text = Page(html).text
    assert 0 < text.index("Limited by:") < text.index("To change it:") < text.index("In numbers")
    for title in (
        "Sessions by what",
        "Throughput",
        "WAL and checkpoints",
        "Queue",
        "I/O requests",
        "Plan",
        "Diagnoses",
    ):
        assert title in text
    assert "orders (data) 700 700 limit of the volume 750" in text
    assert "checkpoints forced by WAL or asked for 1 in all" in text
    assert "orders.csv orders 1,000 2.00 500" in text
    assert "rebuilt orders" in text
    assert html.count("<svg xmlns:xlink") == 6
    assert len(re.findall(r"seconds since the beginning", html)) == 6


@pytest.mark.part("rest")
def test_what_a_recording_does_not_hold_is_left_out(penstock: Callable[..., Finished], tmp_path: Path) -> None:
    """A recording of a remote server, of no load."""
    remote = recording_of([sample(t, session("IO:WalSync"), wal=t, counters=database(t, t)) for t in range(9)])
    text = Page(report(penstock, tmp_path, remote)).text
    assert "WAL and checkpoints" in text
    for title in ("Queue", "I/O requests", "Plan", "Files", "Changed", "Where the load"):
        assert title not in text


@pytest.mark.part("rest")
def test_two_recordings_are_side_by_side_with_differences(penstock: Callable[..., Finished], tmp_path: Path) -> None:
    """With the same axes; a setting that differs is named."""
    first, second = recorded("orders"), recorded("orders", iops=1400)
    second.header = recording_of([], settings={"max_wal_size": "4GB"}).header
    html = report(penstock, tmp_path, first, second)
    text = Page(html).text
    # Rates of loads have no difference.
    assert "I/Os of the data's device /s 700 1,400 I/O of the data's device" in text
    assert "max_wal_size orders 4GB" in text
    charts = re.findall(r'aria-label="I/O requests.*?</svg>', html, flags=re.DOTALL)
    ticks = [re.findall(r">([\d,.]+)</text>", chart) for chart in charts]
    assert len(ticks) == 2
    assert ticks[0] == ticks[1]


def test_rows_that_a_commit_counts_are_spread_over_its_time() -> None:
    """The server counts the rows of a COPY when it ends; while nobody is active, there are none."""
    seen = timeline.Timeline()
    for t in range(12):
        sessions = [session("IO:WalSync")] if t <= 8 else []
        seen.see(sample(t, *sessions, counters=database(1, 0 if t < 8 else 8_000)))
    assert timeline.bin_pieces(seen.rows, end_s=10, bins=5) == [1_000, 1_000, 1_000, 1_000, 0]


def test_position_of_another_server_is_no_wal() -> None:
    """After a failover to a standby that lacked the last WAL, the position has fallen: it is no counter from 0."""
    seen = timeline.Timeline()
    for t, wal in enumerate([9_000_000, 10_000_000, 9_500_000, 9_600_000]):
        seen.see(sample(float(t), wal=wal))
    assert seen.wal_bytes == 1_100_000


@pytest.mark.part("rest")
def test_counts_that_no_server_has_do_not_fill_the_page(penstock: Callable[..., Finished], tmp_path: Path) -> None:
    """A damaged recording may say that there were 10^18 checkpoints."""
    counts = [{"pg_stat_checkpointer": ({"num_requested": number},)} for number in (0, 10**18)]
    damaged = recording_of([sample(float(t), wal=t, counters=each) for t, each in enumerate(counts)])
    assert len(report(penstock, tmp_path, damaged)) < 100_000


def test_recording_without_samples_has_a_page(penstock: Callable[..., Finished], tmp_path: Path) -> None:
    """Its writer was killed at once."""
    assert "No limit was found" in report(penstock, tmp_path, recording_of([]))


@pytest.mark.part("rest")
def test_without_jinja2_the_extra_is_named(tmp_path: Path) -> None:
    """Before a recording is read; all else goes without it."""
    program = (
        "import sys; sys.modules['jinja2'] = None\n"
        "from penstock.cli.main import main\n"
        f"sys.exit(main(['report', {str(tmp_path / 'none')!r}, '-o', {str(tmp_path / 'page.html')!r}]))"
    )
    finished = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert finished.returncode == 2
    assert "pip install 'pg-penstock[report]'" in finished.stderr


@pytest.mark.part("rest")
def test_hostile_names_stay_text(penstock: Callable[..., Finished], tmp_path: Path) -> None:
    """In tables, files, queries, settings, waits, devices, applications and servers: no element is added."""
    tame = Page(report(penstock, tmp_path, recorded("x", server="x", version="x")))
    folder = tmp_path / "hostile"
    folder.mkdir()
    hostile = Page(report(penstock, folder, recorded(HOSTILE, server=HOSTILE, version=HOSTILE)))
    assert hostile.elements == tame.elements
    assert "script" not in hostile.elements
    assert not [name for name, _ in hostile.attributes if name.startswith("on")]
    assert hostile.text.count("<script>document.title='broken'</script>") > 10


@pytest.mark.part("rest")
def test_control_and_direction_characters_are_shown_as_escapes(
    penstock: Callable[..., Finished], tmp_path: Path
) -> None:
    """Wherever a name is shown: the page has none of them."""
    name = "x\x1b]0;T\x07\x1b[31m\x9b\r\u202e\u2066\u061c\u200e\u200f\u2028\u2029"
    html = report(penstock, tmp_path, recorded(name, server=name, version=name))
    raw = {character for character in html if unicodedata.category(character) in ("Cc", "Cf", "Zl", "Zp")}
    assert raw == {"\n"}
    assert html.count(r"x\x1b]0;T\x07\x1b[31m\x9b\r\u202e\u2066\u061c\u200e\u200f\u2028\u2029") > 10


@pytest.mark.part("rest")
def test_page_loads_nothing(penstock: Callable[..., Finished], tmp_path: Path) -> None:
    """No address in an attribute but names of namespaces, and a policy that forbids the rest."""
    html = report(penstock, tmp_path, recorded())
    page = Page(html)
    assert ("content", "default-src 'none'; style-src 'unsafe-inline'") in page.attributes
    names = {name for name, value in page.attributes if value is not None and "//" in value}
    assert names <= {"xmlns", "xmlns:xlink"}
    assert "@import" not in html
    assert all(each.startswith("#") for each in re.findall(r"url\((.*?)\)", html))


def test_recording_that_is_none_and_a_page_over_its_recording_are_refused(
    penstock: Callable[..., Finished], tmp_path: Path
) -> None:
    """Nothing is written."""
    (tmp_path / "none").write_text("no recording")
    assert penstock("report", str(tmp_path / "none"), "-o", str(tmp_path / "page.html")).code == 4
    path = write(tmp_path / "r", recorded())
    before = (tmp_path / "r").read_bytes()
    assert penstock("report", path, "-o", path).code == 4
    assert (tmp_path / "r").read_bytes() == before
    assert not (tmp_path / "page.html").exists()


@pytest.mark.part("rest")
@pytest.mark.skipif(shutil.which("chromium") is None, reason="chromium is not installed (Debian's package chromium)")
def test_chromium_shows_the_page_and_runs_nothing_of_it(penstock: Callable[..., Finished], tmp_path: Path) -> None:
    """The title stays, the charts are there, nothing is refused by the policy; and the page prints."""
    report(penstock, tmp_path, recorded(), recorded(HOSTILE))
    options = ("--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'profile'}")
    page = (tmp_path / "page.html").as_uri()
    shown = subprocess.run(
        ["chromium", *options, "--enable-logging=stderr", "--dump-dom", page],
        capture_output=True, text=True, check=True, timeout=300,
    )  # fmt: skip
    assert "<title>penstock report: 0.recording, 1.recording</title>" in shown.stdout
    assert shown.stdout.count("<figure") == 12
    assert "Content Security Policy" not in shown.stderr
    pdf = tmp_path / "page.pdf"
    subprocess.run(["chromium", *options, f"--print-to-pdf={pdf}", page], capture_output=True, check=True, timeout=300)
    assert pdf.read_bytes().startswith(b"%PDF")
