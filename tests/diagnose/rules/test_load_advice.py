"""Advice to a load: never what its job already does, and never what is for another kind of job."""

from __future__ import annotations

import re
from dataclasses import replace
from string import Formatter
from typing import TYPE_CHECKING, cast

from hypothesis import given
from hypothesis import strategies as st

from penstock.changes.values import IndexOrKey, IndexPlan
from penstock.core.tuning import DEFAULT_TUNING
from penstock.core.units import MIB
from penstock.core.values.accounts import LoadAccounts, LoadConditions, ReaderSeconds, SessionSeconds
from penstock.core.values.diagnosis import Diagnosis
from penstock.core.values.dialect import Dialect
from penstock.core.values.job import Housekeeping, LoadJob, LoadRules, TargetJob, Transform
from penstock.core.values.mode import RoutePlan
from penstock.core.values.source import SourceObject
from penstock.core.values.table import ColumnMap, TableFacts, TableName
from penstock.diagnose.load import LOAD_ADVICE, find_verdict
from penstock.diagnose.rules.advice import ADVICE
from penstock.diagnose.values import CHOICES, write_remedy
from penstock.loading.choices import list_choices
from penstock.loading.pace import plan_sessions
from penstock.loading.values.plan import CopyChoice, LoadPlan, TargetPlan
from support.plans import SERVER, sample_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from penstock.core.values.mode import Mode
    from penstock.core.values.source import Compression
    from penstock.diagnose.rules.advice import Advice

EVERY_ADVICE: Mapping[str, Advice] = {**ADVICE, **LOAD_ADVICE}
TABLE = TableName(schema="public", name="t")
OPTION = re.compile(r"--mode truncate --atomic|with --atomic|Without --atomic|--[a-z-]+(?: [a-z-]+(?<!-))?")

ACCOUNTS = LoadAccounts(
    elapsed_s=20.0,
    rows_s=20.0,
    sessions=SessionSeconds(),
    session_count=4,
    readers=ReaderSeconds(),
    reader_count=1,
    client_cpu_s=1.0,
    client_cpus=2,
    bytes_read=100 * MIB,
    bytes_copied=100 * MIB,
    rows=10**6,
)

# Of each option that advice may name: whether a load follows it, or cannot. Each is written as a user types it.
FOLLOWED: Mapping[str, Callable[[LoadPlan, Housekeeping], bool]] = {
    "--indexes rebuild": lambda plan, _: plan.job.rules.indexes == "rebuild" or plan.targets[0].is_replaced,
    "--indexes keep": lambda plan, _: plan.job.rules.indexes != "rebuild" or plan.targets[0].landing.is_fresh,
    "--triggers disable": lambda plan, _: plan.job.rules.triggers == "disable" or plan.targets[0].is_replaced,
    "--autovacuum pause": lambda plan, _: plan.job.rules.autovacuum == "pause" or plan.targets[0].is_replaced,
    "--settings bulk-load": lambda _, house: house.settings != "none",
    "--freeze always": lambda plan, _: (
        plan.freeze.is_used or plan.targets[0].is_staged or plan.job.rules.on_error == "reject"
    ),
    "--no-vacuum": lambda plan, _: not plan.job.rules.vacuum,
    "--no-checkpoint": lambda plan, _: plan.job.rules.checkpoint is False,
    "--spool": lambda plan, _: plan.is_repeatable,
    "--mode truncate --atomic": lambda plan, _: plan.targets[0].job.mode != "truncate" or not plan.job.rules.atomic,
    "with --atomic": lambda plan, _: plan.batch.duration_s is None or plan.job.rules.atomic,
    "Without --atomic": lambda plan, _: plan.batch.duration_s is not None or not plan.job.rules.atomic,
    "--sessions": lambda plan, _: plan.batch.duration_s is None,
    "--transform": lambda plan, _: plan.targets[0].job.transform is None,
    "--mode replace": lambda plan, _: plan.targets[0].job.mode != "truncate",
    "--via client": lambda plan, _: not plan.route.is_import,
    "--copy-format text": lambda plan, _: plan.targets[0].copy.format == "text",
    "--no-record": lambda _, house: not house.no_record,
}


def plan_of(job: LoadJob, objects: tuple[SourceObject, ...], target: Mapping[str, object], **rest: object) -> LoadPlan:
    """Return a plan for one table; `target` and `rest` are fields of its classes."""
    (asked,) = job.targets
    fields: dict[str, object] = {
        "job": asked,
        "table": TABLE,
        "facts": TableFacts(oid=1, name=TABLE, kind="r", columns=(), row_triggers=("log",)),
        "create_columns": None,
        "dialect": Dialect(
            format="csv", delimiter=",", quote='"', escape='"', nulls=("",), has_header=True, encoding="UTF8"
        ),
        "header": None,
        "column_map": ColumnMap(columns=()),
        "objects": objects,
        "sample": sample_of(objects[0]),
        "allows_suppressed_rows": False,
        "landing": asked.landing.staged() if job.rules.atomic and asked.landing.truncates else asked.landing,
        **target,
    }
    is_repeatable = not any(source.is_pipe and not source.is_spooled for source in objects)
    planned = TargetPlan(**fields)  # type: ignore[arg-type]
    is_single = not is_repeatable or (job.rules.atomic and planned.fills_table)
    sessions = plan_sessions(asked=1 if is_single else job.sessions, cpu_count=8, free_connections=90)
    batch = DEFAULT_TUNING.batch
    return LoadPlan(
        load_id="1",
        job=job,
        server=SERVER,
        targets=(planned,),
        sessions=sessions,
        batch=replace(batch, limit_bytes=None, duration_s=None) if is_single else batch,
        is_repeatable=is_repeatable,
        **rest,  # type: ignore[arg-type]
    )


@st.composite
def loads(draw: st.DrawFn) -> tuple[LoadPlan, Housekeeping]:
    """Return a random job of one table, as it is planned."""
    mode: Mode = draw(st.sampled_from(["append", "truncate", "replace", "upsert", "insert-new"]))
    transform = Transform(name="t.sql", text="") if mode == "append" and draw(st.booleans()) else None
    rules = LoadRules(
        atomic=draw(st.booleans()),
        indexes=draw(st.sampled_from(["auto", "keep", "rebuild"])),
        triggers=draw(st.sampled_from(["keep", "disable"])),
        autovacuum=draw(st.sampled_from(["keep", "pause"])),
        vacuum=draw(st.booleans()),
        checkpoint=draw(st.sampled_from([None, True, False])),
    )
    keyed = ("a",) if mode in ("upsert", "insert-new") else ()
    job = LoadJob(
        targets=(TargetJob(sources=("a",), into=TABLE, mode=mode, key=keyed, transform=transform),),
        sessions=draw(st.sampled_from([None, 1, 4])),
        rules=rules,
    )
    kind = draw(st.sampled_from(["/f{}.csv", "s3://b/f{}.csv", "-"]))
    count = 1 if kind == "-" else draw(st.integers(1, 9))
    version = None if kind == "-" else "1"
    objects = tuple(
        SourceObject(uri=kind.format(number), location=kind.format(number), size_bytes=MIB, version=version)
        for number in range(count)
    )
    keeps = rules.indexes != "rebuild" and mode != "replace"
    part = IndexOrKey(
        kind="constraint", what=draw(st.sampled_from(["foreign key", "index"])), name="k", relation="t", reason=""
    )
    indexes = IndexPlan(
        dropped=() if keeps or mode == "replace" else (part,), kept=(part,) if keeps else (), droppable=("k",) * keeps
    )
    compression = cast("Compression", draw(st.sampled_from(["none", "gzip", "zstd", "xz"])))
    copy = CopyChoice(format=draw(st.sampled_from(["text", "binary"])))
    target = {"indexes": indexes, "sample": sample_of(objects[0], compression), "copy": copy}
    route = RoutePlan(via="server") if kind.startswith("s3") and draw(st.booleans()) else RoutePlan()
    house = Housekeeping(settings=draw(st.sampled_from(["none", "auto", "bulk-load"])), no_record=draw(st.booleans()))
    return plan_of(job, objects, target, route=route), house


def advise(code: str, plan: LoadPlan, house: Housekeeping) -> str:
    """Return the remedy of one diagnosis of a load."""
    choices = list_choices(plan, house, ACCOUNTS, is_recorded=not house.no_record)
    ways = EVERY_ADVICE[code].remedy
    fields = {name for way in ways for _, name, _, _ in Formatter().parse(way.text) if name}
    words = dict.fromkeys(fields.difference(CHOICES), "x")
    return write_remedy(ways, LoadConditions(choices=choices), words)


@given(code=st.sampled_from(sorted(EVERY_ADVICE)), load=loads())
def test_advice_names_no_option_that_the_load_has_or_cannot_have(
    code: str, load: tuple[LoadPlan, Housekeeping]
) -> None:
    """Of all random jobs and all diagnoses."""
    plan, house = load
    remedy = advise(code, plan, house)
    for option in OPTION.findall(remedy):
        name, _, _ = option.partition(" ")
        assert not FOLLOWED[option if option in FOLLOWED else name](plan, house), remedy


@given(load=loads())
def test_more_files_are_advised_only_if_there_are_fewer_than_sessions(load: tuple[LoadPlan, Housekeeping]) -> None:
    """And a faster compression only if the files have a slow one."""
    plan, house = load
    remedy = advise("load-decompression", plan, house)
    assert ("more files" in remedy) == (len(plan.targets[0].objects) < 4 and plan.is_repeatable)
    assert ("zstd" in remedy) == (plan.targets[0].sample.compression in ("gzip", "xz"))


@given(load=loads())
def test_statement_of_the_user_is_named_only_if_there_is_one(load: tuple[LoadPlan, Housekeeping]) -> None:
    """An upsert has none that the user could look at."""
    plan, house = load
    assert ("--transform" in advise("load-store", plan, house)) == (plan.targets[0].job.transform is not None)


def test_no_text_names_an_option_by_itself() -> None:
    """Each is one of the choices, so a load that does not have the choice does not get the sentence."""
    for advice in EVERY_ADVICE.values():
        assert not [way.text for way in advice.remedy if "--" in way.text]


def test_every_choice_is_named_by_some_advice() -> None:
    """None is computed for nothing."""
    named = {name for advice in EVERY_ADVICE.values() for way in advice.remedy for name in way.needs}
    assert named == set(CHOICES)


def test_workload_that_is_no_load_is_told_to_commit_more_rows() -> None:
    """And a load, whose transactions are long, to commit once."""
    ways = ADVICE["commit-local-flush"].remedy
    words = {"batch": "every 99 rows", "clients": ""}
    assert "every 99 rows" in write_remedy(ways, None, words)
    assert "rows" not in write_remedy(ways, LoadConditions(), words)
    assert "--atomic" in write_remedy(ways, LoadConditions(choices=("atomic",)), words)


def test_short_or_small_load_has_no_verdict_nor_has_a_small_share() -> None:
    """From 10 s, 64 MiB and a third of the time on; a guess from too few samples is none either."""
    found = Diagnosis(
        code="load-source",
        claim="",
        share=0.34,
        evidence=(),
        samples=0,
        confidence="high",
        remedy="",
        proof="",
        source="",
    )
    least = replace(ACCOUNTS, elapsed_s=10.0, bytes_read=MIB, bytes_copied=64 * MIB)
    assert find_verdict([found], least, DEFAULT_TUNING) == (found,)
    assert find_verdict([found], replace(least, elapsed_s=9.9), DEFAULT_TUNING) == ()
    assert find_verdict([found], replace(least, bytes_copied=64 * MIB - 1), DEFAULT_TUNING) == ()
    assert find_verdict([replace(found, share=0.33)], least, DEFAULT_TUNING) == ()
    assert find_verdict([replace(found, confidence="too few samples")], least, DEFAULT_TUNING) == ()
