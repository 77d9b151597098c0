"""One table, one load, many faults: drawn from a seed, run, and compared with the files at the end."""

from __future__ import annotations

import contextlib
import random
import shutil
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg.conninfo import make_conninfo

from support.campaign.check import BEFORE, MERGES, check_load
from support.campaign.columnar import COLUMNAR
from support.campaign.faults import Hit, strike
from support.campaign.files import COLUMNS, FileSet, draw_files, write_rival
from support.campaign.hosts import check_hosts, finish_hosts, start_hosts, strike_hosts
from support.campaign.ledger import LedgerView, Observer
from support.campaign.loader import BROKEN
from support.campaign.retries import strike_retries
from support.clock import HAS_FAKETIME

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Mapping
    from pathlib import Path

    from penstock.core.values.job import CopyFormat, Mode
    from penstock_lab.topology.relay import Relay
    from support.campaign.files import Row
    from support.campaign.plant import Pair, Plant, Single
    from support.campaign.processes import LoaderProcess
    from support.campaign.s3 import Store

# What a theme's load is hit by.
_THEMES: dict[str, tuple[str, ...]] = {
    "loader": ("kill", "kill", "terminate", "interrupt", "interrupt twice"),
    "commit": ("commit", "commit", "commit", "kill"),
    "crash": ("crash",),
    "promote": ("promote",),
    # The primary is lost after the last commit, and its standby lacks some.
    "late": ("late", "late", "kill"),
    "network": ("reset", "stall"),
    "store": ("s3",),
    "disk": ("disk",),
    "grow": ("grow", "grow", "grow", "kill"),
    "beside": ("beside", "beside", "beside", "kill"),
    "clock": ("clock", "clock", "kill"),
    # Loads whose rejected records are then corrected and retried; retries.py has the faults of these.
    "retry": ("kill", "terminate"),
    # By --mode sync; of a pair with a standby: _FAILING_OVER.
    "sync": ("kill", "kill", "commit", "terminate", "crash", "reset", "stall"),
    # By several processes with --join.
    "hosts": ("member", "member", "leader", "leader", "stop", "stop", "terminate", "all", "crash", "leave"),
    # The same, and each process sees only some of the objects: most see others than those that the load began with.
    "lists": ("member", "leader", "leader", "leader", "stop", "terminate", "all", "crash", "leave"),
    # By --via server.
    "import": ("kill", "kill", "commit", "terminate", "crash", "s3", "interrupt", "interrupt twice"),
}
_FAILING_OVER = ("kill", "terminate", "promote", "promote")
# Themes of loads by several processes.
_JOINT = ("hosts", "lists")
# What half of the loads of other themes are hit by as well.
_ADDITIONS = ("kill", "terminate", "interrupt", "interrupt twice")

# Seeds take the themes in turn, so that a short campaign meets them all.
_TURNS = (
    *("crash", "commit", "loader", "promote", "network", "grow", "store", "disk", "beside", "clock"),
    *("crash", "commit", "loader", "promote", "late", "hosts", "store", "import", "lists", "clock"),
    *("sync", "retry", "crash", "commit", "late", "promote", "sync", "retry"),
)

# What the files of a scenario may be.
_TEXTS = ("csv", "csv", "tsv", "text", "jsonl")
FORMS = (*_TEXTS, *COLUMNAR)

# Most loads append.
_MODES: tuple[Mode, ...] = (*("append",) * 12, "truncate", "truncate", "replace", "replace", "upsert", "insert-new")

# Landing tables know no trigger that could slow their load down, so its source does.
_SLOW_PIECE_S = 0.004

# A load that has not ended so long after its last fault hangs.
_END_PATIENCE_S = 90.0

_START_PATIENCE_S = 30.0

# Longer than the first waits of a loader between its attempts.
_PROGRESS_PATIENCE_S = 2.5

_PACE = """
    CREATE OR REPLACE FUNCTION campaign_pace() RETURNS trigger LANGUAGE plpgsql AS
        'BEGIN PERFORM pg_sleep(TG_ARGV[0]::float8); RETURN NULL; END';
    CREATE OR REPLACE FUNCTION campaign_wait() RETURNS trigger LANGUAGE plpgsql AS
        'BEGIN WHILE (SELECT is_on FROM campaign_brake) LOOP PERFORM pg_sleep(0.02); END LOOP; RETURN NULL; END';
    CREATE TABLE IF NOT EXISTS campaign_brake (is_on boolean NOT NULL);
    TRUNCATE campaign_brake;
    INSERT INTO campaign_brake VALUES (false);
"""


class Broken(AssertionError):
    """A scenario that ended otherwise than it must, with all that is needed to look into it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """What a seed stands for.

    `has_commits_off`: the loader's sessions have synchronous_commit = off from the user. `ends_with_loss`: the server
    is lost as soon as the load has said that it is complete. `forms`: what its files may be.
    `rebuilds`, `settings`: whether an index is rebuilt behind the rows, and which settings are changed meanwhile.
    `has_binary`: about half of the loaders send rows in the binary format.
    """

    seed: int
    theme: str
    kinds: tuple[str, ...]
    major: int
    mode: Mode
    bad: int
    rows: int
    objects: int
    sessions: int
    batch_bytes: int
    piece_bytes: int
    pace_s: float
    faults: int
    has_commits_off: bool
    ends_with_loss: bool
    has_binary: bool
    rebuilds: bool
    settings: str
    forms: tuple[str, ...]

    @property
    def is_joint(self) -> bool:
        """Whether several processes load together."""
        return self.theme in _JOINT

    @property
    def begins_again(self) -> bool:
        """Whether a load that is complete is begun again by who comes then."""
        return self.mode in ("truncate", "replace", "sync")


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """How a scenario that held went; one that did not is raised as Broken.

    `redone` rows were sent more than once, None where that was not measured; `ended_early` says why loaders gave up.
    `binary` of the `loaders` sent rows in the binary format.
    """

    scenario: Scenario
    form: str
    hits: tuple[Hit, ...]
    rows: int
    lost: int
    repeated: int
    false_successes: int
    redone: int | None
    seconds: float
    loaders: int
    binary: int
    ended_early: tuple[str, ...]


def draw_scenario(
    seed: int,
    *,
    majors: tuple[int, ...],
    can_mount: bool,
    forms: tuple[str, ...] = FORMS,
    theme: str | None = None,
) -> Scenario:
    """Return the scenario of a seed, of a theme if one is given; its files have one of the forms."""
    rng = random.Random(seed)
    theme = theme or _TURNS[seed % len(_TURNS)]
    if (theme == "disk" and not can_mount) or (theme == "clock" and not HAS_FAKETIME):
        theme = "crash"
    kinds = _THEMES[theme]
    if theme == "sync" and rng.random() < 0.4:
        kinds = _FAILING_OVER
    if theme not in ("loader", "commit", "retry", *_JOINT) and rng.random() < 0.5:
        kinds = (*kinds, *kinds, rng.choice(_ADDITIONS))
    mode = rng.choice(_MODES)
    if (theme in ("commit", "disk", "beside") and mode != "truncate") or theme in ("clock", "import", "retry"):
        # Others commit their rows to tables that sleep at no COMMIT, lie on no small disk, and are nobody else's yet;
        # and of loads that began anew the observer knows the newest by the clock.
        mode = "append"
    if theme == "late":
        mode = rng.choice(("append", "append", "upsert"))
    if theme == "sync":
        mode = "sync"
    may_reject = _may_reject(theme, mode) and (theme == "retry" or rng.random() < 0.2)
    return Scenario(
        seed=seed,
        theme=theme,
        kinds=kinds,
        major=18 if theme == "import" or {"promote", "late"} & {*kinds} else rng.choice(majors),
        mode=mode,
        bad=rng.randrange(10, 30) if may_reject else 0,
        rows=rng.randrange(5_000, 14_000),
        objects=rng.randrange(12, 30) if theme in ("store", "import", *_JOINT) else rng.choice((1, 1, 2, 3, 8)),
        sessions=rng.choice((2, 3, 4) if theme == "commit" else (1, 2, 2, 3, 4)),
        batch_bytes=rng.randrange(6_000, 20_000),
        piece_bytes=rng.randrange(1_000, 6_000),
        pace_s=rng.uniform(0.02, 0.08),
        faults=rng.randrange(5, 12),
        has_commits_off=rng.random() < 0.3,
        ends_with_loss=theme in ("crash", "promote", "sync", "retry") and rng.random() < 0.5,
        has_binary=theme != "import" and mode not in MERGES,
        rebuilds=theme == "late" and mode == "append" and rng.random() < 0.5,
        settings="bulk-load" if theme == "late" and rng.random() < 0.5 else "none",
        # COPY has no tsv and no JSON Lines; what a columnar file has cannot be corrected in place.
        forms=("csv", "text") if theme == "import" else _TEXTS if theme == "retry" else forms,
    )


def _may_reject(theme: str, mode: Mode) -> bool:
    return mode in ("append", "truncate", "replace") and theme != "import"


@dataclass(slots=True)
class Run:
    """A scenario that is being played; what the faults reach for."""

    scenario: Scenario
    plant: Plant
    rng: random.Random
    place: Single | Pair
    folder: Path
    files: FileSet
    observer: Observer
    relay: Relay | None = None
    store: Store | None = None
    disk: Path | None = None
    hits: list[Hit] = field(default_factory=list)
    loaders: list[LoaderProcess] = field(default_factory=list)
    binary: int = 0
    ended_early: list[str] = field(default_factory=list)
    replaced_by: Counter[Row] | None = None
    # Whether rejected records were loaded from a corrected file.
    corrected: bool = False
    on_changed: str = "error"
    # The names of the objects that the next loader does not see.
    hidden: frozenset[str] = frozenset()
    faults_at_start: int = 0
    strikes: int = 0
    _began_s: float = field(default_factory=time.monotonic)
    _seen: set[str] = field(default_factory=set)
    _load_id: str | None = None
    is_over: bool = False

    @property
    def loader(self) -> LoaderProcess:
        """Return the loader that works now."""
        return self.loaders[-1]

    @property
    def has_index(self) -> bool:
        """Whether the table has an index that is dropped while it is loaded."""
        is_joint = self.scenario.is_joint and self.scenario.mode in ("append", "truncate")
        return is_joint or self.scenario.rebuilds

    @property
    def table(self) -> str:
        """Return the table's name."""
        return f"t_{self.scenario.seed}"

    def elapsed_s(self) -> float:
        """Return the time since the scenario began."""
        return time.monotonic() - self._began_s

    def start(self, **changes: object) -> LoaderProcess:
        """Start a loader for the same load, with some of its request changed."""
        self.loaders.append(self._launch(f"loader {self.scenario.seed}.{len(self.loaders)}", changes))
        self.faults_at_start = self.strikes
        return self.loader

    def start_rival(self) -> tuple[LoaderProcess, Counter[Row]]:
        """Start a loader that replaces the table; return what it then has too."""
        path = self.folder / "rival" / "file"
        rows = write_rival(path, self.files.format, self.rng)
        changes = {"sources": [str(path)], "mode": "replace", "key": [], "on_error": "stop", "retry_for_s": 1.0}
        return self._launch(f"rival {self.scenario.seed}.{self.strikes}", changes), rows

    def start_retry(self, load_id: str, file: Path | None) -> LoaderProcess:
        """Start a process that retries a load's rejected records, or those of a corrected file."""
        changes = {"retry": load_id, "file": None if file is None else str(file)}
        return self._launch(f"retry {self.scenario.seed}.{self.strikes}", changes)

    def drop_rival(self) -> None:
        """Drop the landing tables of a rival and delete its loads from the ledger."""
        of_rival = "SELECT load FROM penstock.objects WHERE target_table = %s AND uri LIKE '%%/rival/%%'"
        query = (
            f"SELECT format('%%I.%%I', landing_schema, landing_table) FROM penstock.targets WHERE load IN ({of_rival})"
        )
        for (table,) in self.observer.execute(query, [self.table]):
            self.observer.execute(f"DROP TABLE IF EXISTS {table}")
        self.observer.execute(f"DELETE FROM penstock.loads WHERE id IN ({of_rival})", [self.table])

    def _launch(self, name: str, changes: Mapping[str, object]) -> LoaderProcess:
        conninfo = make_conninfo(self.place.conninfo, dbname="postgres")
        if self.relay is not None:
            conninfo = f"host=127.0.0.1 port={self.relay.port} user=postgres dbname=postgres sslmode=disable"
        if self.scenario.has_commits_off:
            conninfo = make_conninfo(conninfo, options="-c synchronous_commit=off")
        request = {
            "name": f"{name} ",
            "log": str(self.folder / f"{name}.log"),
            "conninfo": conninfo,
            "table": self.table,
            "sources": [self._source()],
            "dialect": self._dialect(),
            "sessions": self.scenario.sessions,
            "batch_bytes": self.scenario.batch_bytes,
            "piece_bytes": self.scenario.piece_bytes,
            "piece_s": _SLOW_PIECE_S if self.scenario.mode in (*MERGES, "replace") else 0,
            "mode": self.scenario.mode,
            "key": ["id"] if self.scenario.mode in MERGES else [],
            **({"max_delete": 100.0} if self.scenario.mode == "sync" else {}),
            "settings": self.scenario.settings,
            "on_error": "reject" if self.scenario.bad else "stop",
            "copy_format": self._draw_format(),
            "on_changed": self.on_changed,
            "retry_for_s": 60.0,
            "join": self.scenario.is_joint,
            "hidden": sorted(self.hidden),
            "indexes": "rebuild" if self.has_index else "auto",
            "via": "server" if self.scenario.theme == "import" else "client",
            "environment": {} if self.store is None else self.store.environment,
        }
        asked = request | dict(changes)
        self.binary += asked["copy_format"] == "binary"
        return self.plant.zygote.start(asked)

    def _draw_format(self) -> CopyFormat:
        """Return the format in which the next loader sends rows: it may resume what another began in the other one."""
        may_be = self.scenario.has_binary and not self.scenario.bad and self.files.format in ("csv", "tsv", "text")
        return (
            "binary" if may_be and random.Random(f"{self.scenario.seed} {len(self.loaders)}").random() < 0.5 else "auto"
        )

    def go_on(self) -> None:
        """Start another loader, unless the last one had loaded everything before it ended."""
        view = self.look()
        if view is not None and not view.is_incomplete:
            self.is_over = True
        else:
            self.start()

    def _dialect(self) -> dict[str, object]:
        if self.files.is_columnar or self.files.format == "jsonl":
            return {"format": self.files.format}
        is_csv = self.files.format == "csv"
        return {
            "format": self.files.format,
            "delimiter": "," if is_csv else "\t",
            "null": [""] if is_csv else ["\\N"],
            "header": True,
            "encoding": "UTF8",
        }

    def _source(self) -> str:
        if self.store is not None:
            return f"s3://campaign/{self.table}/"
        return f"{self.folder}/files/*"

    def look(self) -> LedgerView | None:
        """Return the load as the ledger has it; what was committed must still be, but for a server that was lost."""
        view = self.observer.view()
        if view is not None:
            # These begin again if their last transaction was committed although the loader was killed.
            may_be_several = self.scenario.begins_again or self.scenario.theme == "lists"
            assert view.loads == 1 or may_be_several, f"{view.loads} loads of one table"
            if view.load_id != self._load_id:
                self._load_id, self._seen = view.load_id, set()
            missing = self._seen - view.ranges
            assert not missing, f"committed rows vanished without a crash: {sorted(missing)}"
            self._seen |= view.ranges
        return view

    def await_progress(self) -> None:
        """Wait until something is committed that was not when the last look was taken; not for long."""
        known, until_s = set(self._seen), time.monotonic() + _PROGRESS_PATIENCE_S
        while self.loader.is_running() and time.monotonic() < until_s:
            view = self.look()
            if view is not None and not known.issuperset(view.ranges):
                return
            time.sleep(0.02)

    def forget_seen(self, left: frozenset[str]) -> None:
        """Take what a lost server left for what is committed."""
        self._seen = set(left)

    def set_brake(self, *, is_on: bool) -> None:
        """Let transactions sleep at their COMMIT, or go on."""
        self.observer.execute("UPDATE campaign_brake SET is_on = %s", [is_on])

    def check_end(self, loader: LoaderProcess, allowed: set[int]) -> None:
        """Accept how a loader ended, or raise AssertionError."""
        code, log = loader.exit_code, loader.read_log()
        if code in allowed or code == 0:
            return
        assert code != BROKEN, "a loader broke"
        assert self.strikes > self.faults_at_start, f"a loader ended with {code} though nothing had hit it"
        assert "transient=True" in log or "failed while planning" in log, f"a loader ended with {code}"
        self.ended_early.append(log.partition("failed while")[2][:160].replace("\n", " "))


def play(scenario: Scenario, plant: Plant, folder: Path) -> Played:
    """Play a scenario to its end and check what came of it. Raises Broken."""
    run = _set_up(scenario, plant, folder)
    try:
        if scenario.is_joint:
            start_hosts(run)
            while len(run.hits) < scenario.faults and strike_hosts(run):
                pass
            finish_hosts(run)
        else:
            run.start()
            while len(run.hits) < scenario.faults and _strike_once(run):
                pass
            finish(run)
        if scenario.theme == "retry":
            strike_retries(run)
        if scenario.ends_with_loss:
            run.place.lose()
        redone = check_load(run)
        if scenario.is_joint:
            check_hosts(run)
    except Exception as exc:
        raise Broken(_describe(run, exc)) from exc
    finally:
        for loader in run.loaders:
            loader.kill()
        run.observer.close()
    _tear_down(run)
    return Played(
        scenario=scenario,
        form=run.files.format,
        hits=tuple(run.hits),
        rows=run.files.rows.total(),
        lost=0,
        repeated=0,
        false_successes=0,
        redone=redone,
        seconds=round(run.elapsed_s(), 2),
        loaders=len(run.loaders),
        binary=run.binary,
        ended_early=tuple(run.ended_early),
    )


def _set_up(scenario: Scenario, plant: Plant, folder: Path) -> Run:
    rng = random.Random(scenario.seed + 1)
    is_import = scenario.theme == "import"
    if is_import:
        place: Single | Pair = plant.importing()
    else:
        place = plant.pair() if {"promote", "late"} & {*scenario.kinds} else plant.single(scenario.major)
    files = draw_files(
        rng,
        rows=scenario.rows,
        objects=scenario.objects,
        bad=scenario.bad,
        is_unique=scenario.mode in MERGES,
        # A record that has grown is another one, and refused if it is committed.
        may_be_unended=scenario.theme != "grow",
        forms=scenario.forms,
    )
    run = Run(
        scenario=scenario,
        plant=plant,
        rng=rng,
        place=place,
        folder=folder / f"seed-{scenario.seed}",
        files=files,
        observer=Observer(make_conninfo(place.conninfo, dbname="postgres"), f"t_{scenario.seed}"),
    )
    (run.folder / "files").mkdir(parents=True)
    files.write(run.folder / "files")
    space = ""
    if "reset" in scenario.kinds:
        run.relay = plant.relay_to(place)  # type: ignore[arg-type]
    if scenario.theme in ("store", "import"):
        run.store = plant.store()
        run.store.put(run.table, files.bodies)
    if scenario.theme == "disk":
        run.disk, space = plant.small_disk(place), "TABLESPACE small"  # type: ignore[arg-type]
    with psycopg.connect(make_conninfo(place.conninfo, dbname="postgres"), autocommit=True) as connection:
        _make_table(run, connection, space)
    return run


def _make_table(run: Run, connection: psycopg.Connection[Any], space: str) -> None:
    """Make the table, with what is in it before, and with triggers that make its load last."""
    connection.execute(_PACE.encode())
    connection.execute(f"CREATE TABLE {run.table} ({COLUMNS}) {space}".encode())
    if run.scenario.mode in MERGES:
        connection.execute(f"CREATE UNIQUE INDEX ON {run.table} (id)".encode())
    if run.has_index:
        connection.execute(f"CREATE INDEX {run.table}_amount ON {run.table} (amount)".encode())
    if run.scenario.mode != "append":
        connection.cursor().executemany(f"INSERT INTO {run.table} VALUES (%s, %s, %s)".encode(), BEFORE)
    # A sync is slow where it merges, too.
    events = "INSERT OR UPDATE OR DELETE" if run.scenario.mode == "sync" else "INSERT"
    connection.execute(
        f"""
        CREATE TRIGGER pace AFTER {events} ON {run.table} FOR EACH STATEMENT
            EXECUTE FUNCTION campaign_pace({run.scenario.pace_s});
        CREATE CONSTRAINT TRIGGER late AFTER INSERT ON {run.table} DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
            WHEN (NEW.id % 20 = 0) EXECUTE FUNCTION campaign_wait();
        """.encode()
    )


def _strike_once(run: Run) -> bool:
    """Wait for a random moment and strike; return whether there is a load to go on with."""
    if run.rng.random() < 0.9:
        run.loader.await_text("phase running", _START_PATIENCE_S)
    if run.rng.random() < 0.8:
        run.await_progress()
    run.loader.wait(run.rng.uniform(0.0, 0.3))
    if not run.loader.is_running():
        return _take_end(run)
    run.strikes += 1
    hit = strike(run, run.rng.choice(run.scenario.kinds))
    if hit is not None:
        run.hits.append(hit)
    return True


def _take_end(run: Run) -> bool:
    """Check how a loader ended by itself; start another if it has not loaded everything."""
    if run.is_over or run.loader.exit_code == 0:
        return False
    run.check_end(run.loader, set())
    run.go_on()
    return not run.is_over


def finish(run: Run) -> None:
    """Let the load come to its end, by as many loaders as that takes."""
    until_s = time.monotonic() + _END_PATIENCE_S
    while True:
        assert run.loader.wait(until_s - time.monotonic()), f"the load has not ended {_END_PATIENCE_S:g} s later"
        if not _take_end(run):
            return


# ---------------------------------------------------------------- afterwards


def _tear_down(run: Run) -> None:
    if run.scenario.theme == "clock":
        # With the machine's clock again.
        run.place.lose()
    view = run.observer.view()
    run.observer.execute(f"DROP TABLE IF EXISTS {run.table}")
    run.observer.execute("DELETE FROM penstock.loads WHERE id = %s", [None if view is None else view.load_id])
    run.observer.close()
    if run.store is not None:
        run.store.delete(run.table, run.files.bodies)
    shutil.rmtree(run.folder)


def _describe(run: Run, exc: BaseException) -> str:
    """Return all that is needed to look into a failure."""
    lines = [f"{type(exc).__name__}: {exc}", f"{run.scenario}", f"files, loaders' logs and server.log: {run.folder}"]
    with contextlib.suppress(OSError):
        shutil.copy(run.place.log, run.folder / "server.log")
    lines += ["hits:"]
    lines += [f"  {hit}" for hit in run.hits]
    for loader in run.loaders[-12 if run.scenario.is_joint else -3 :]:
        lines += [f"{loader.name}:", *(f"  {line}" for line in loader.read_log().splitlines()[-30:])]
    lines += ["ledger:", *_dump_ledger(run)]
    return "\n".join(lines)


def _dump_ledger(run: Run) -> list[str]:
    query = """
        SELECT l.id, l.state, l.epoch, l.rows, r.object, r.ranges, r.rows, r.committed_at
          FROM penstock.loads AS l
          LEFT JOIN penstock.ranges AS r ON r.load = l.id
         WHERE EXISTS (SELECT FROM penstock.objects AS o WHERE o.load = l.id AND o.target_table = %s)
         ORDER BY r.object, r.start
    """
    try:
        rows: list[Any] = run.observer.execute(query, [run.table])
    except psycopg.Error as error:
        return [f"  could not be read: {error}"]
    return ["  " + " ".join(map(str, row)) for row in rows[:200]]
