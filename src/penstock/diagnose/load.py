"""Concludes what limited a load from the seconds that the loader counted and, if there are any, samples of the server.

The counts say on which side a load waits: for its source, its own work, the server, or the network. The samples say
what the server does at the same time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import astuple, replace
from typing import TYPE_CHECKING, Final

from penstock.core.slotted import slotted
from penstock.core.units import MB
from penstock.core.values.accounts import LoadAccounts, LoadConditions, LoadCounts
from penstock.core.values.diagnosis import Confidence, Diagnosis, Evidence
from penstock.diagnose.examination import REMARKS, Findings, rank
from penstock.diagnose.rules.advice import Advice
from penstock.diagnose.rules.case import FEWEST_SAMPLES, number
from penstock.diagnose.values import RemedySentence, write_remedy
from penstock.watch.waits import CPU

if TYPE_CHECKING:
    from penstock.core.tuning import LoadTuning
    from penstock.watch.values import Recording

_COUNTED = "docs/diagnose.md"
_MANUAL = "https://www.postgresql.org/docs/current/"
_POPULATE = f"{_MANUAL}populate.html"
_AGAIN = "load again: this share falls, at more rows per second"

# More memory is not proposed, because a load gives each build the amount that is fastest
# (changes/tables/rebuild_plan.py).
_MORE_FOR_BUILDS = (RemedySentence("More processors and a faster disk of the server shorten the builds."),)

# docs/diagnose.md has a row for each code. Step names are those of the load's steps.
LOAD_ADVICE: Final = {
    "load-source": Advice(
        "the load's time waits for the source of the files",
        (
            RemedySentence("Run the load on a host near {far_source}, or over a faster link."),
            RemedySentence("Put the files on faster storage than {near_source} that has them."),
            RemedySentence("The program that writes to {pipe} is slower than the load: let it write faster."),
            RemedySentence(
                "A source that gives each reader only so much is faster with {more_files}, because each file has a "
                "reader."
            ),
        ),
        _AGAIN,
        _COUNTED,
    ),
    "load-decompression": Advice(
        "the load's time waits for the decompression of the files",
        (
            RemedySentence("Divide the data into {more_files}, because each file is decompressed by one processor."),
            RemedySentence("Compress the files with {fast_codec}, which decompress several times as fast as others."),
            RemedySentence("A host with more or faster processors decompresses faster."),
        ),
        _AGAIN,
        _COUNTED,
    ),
    "load-cutting": Advice(
        "the load's time waits until the records of the files are found, or decoded",
        (
            RemedySentence("Divide the data into {more_files}, because each file is read by one thread."),
            RemedySentence("A host with faster processors reads faster."),
        ),
        _AGAIN,
        _COUNTED,
    ),
    "load-encoding": Advice(
        "the load's time makes COPY data on the client's processors",
        (
            RemedySentence("Run the load on a host with more or faster processors."),
            RemedySentence("Files in {plain_text} need the least work."),
            RemedySentence("With {text_format} the server reads the values, and not this host."),
        ),
        _AGAIN,
        _COUNTED,
    ),
    "load-commit": Advice(
        "the load's time waits for COMMIT",
        (
            RemedySentence("Commit once, with {atomic}, if the load may start again from its first row."),
            RemedySentence("penstock commits says what each commit waits for."),
        ),
        _AGAIN,
        f"{_MANUAL}wal-async-commit.html",
    ),
    "load-network": Advice(
        "the load's time sends rows that the server waits for",
        (
            RemedySentence(
                "Run the load on a host near the server, or over a faster link: the server takes rows faster than "
                "they arrive."
            ),
        ),
        "load again: Client:ClientRead is below half of the sessions' active time",
        _COUNTED,
    ),
    "load-foreign-keys": Advice(
        "the load's time waits for checks at the end of COPY commands: foreign keys {names}",
        (
            RemedySentence(
                "Have the load drop the foreign keys and add them again at the end, which checks all rows at once: "
                "{rebuild_keys}."
            ),
            RemedySentence("The checks are faster if the server's memory has the keys of the referenced tables."),
        ),
        _AGAIN,
        _POPULATE,
    ),
    "load-triggers": Advice(
        "the load's time waits for work at the end of COPY commands: triggers {names}",
        (
            RemedySentence("Disable the triggers during the load, if the rows do not need them: {disable_triggers}."),
            RemedySentence("Let the triggers' functions do less for each row."),
        ),
        _AGAIN,
        _POPULATE,
    ),
    "load-server-cpu": Advice(
        "the load's time is spent on the server's processors, to parse, check and store rows",
        (
            RemedySentence(
                "Disable triggers during the load, if the rows do not need them ({triggers}): {disable_triggers}."
            ),
            RemedySentence(
                "If the load brings most of the table's rows, create the indexes after them ({indexes}): {rebuild}."
            ),
            RemedySentence("A server with more processors parses and stores rows faster."),
        ),
        _AGAIN,
        _POPULATE,
    ),
    "load-few-sessions": Advice(
        "the load's time waits for the server, whose sessions compute while other processors are idle{why}",
        (
            RemedySentence("Use more sessions: {more_sessions}."),
            RemedySentence("Without {not_atomic} several sessions load at a time."),
            RemedySentence("Copy standard input to a file first, so that several sessions can load it: {spool}."),
            RemedySentence("Each object is imported by one session: divide the data into {more_imports}."),
            RemedySentence("With {via_client} several sessions share an object."),
        ),
        _AGAIN,
        _COUNTED,
    ),
    "load-server": Advice(
        "the load's time waits for the server to take and store rows",
        (
            RemedySentence("{recording} shows what the server's sessions waited for."),
            RemedySentence("Without {no_record} samples of the server say what it does meanwhile."),
        ),
        _AGAIN,
        _COUNTED,
    ),
    "load-indexes": Advice(
        "the load's time creates indexes and keys after the rows",
        (*_MORE_FOR_BUILDS, RemedySentence("If the table had most of its rows before: {keep_indexes}.")),
        _AGAIN,
        _POPULATE,
    ),
    "load-upkeep": Advice(
        "the load's time runs VACUUM, ANALYZE or CHECKPOINT after the rows",
        (
            RemedySentence("Leave VACUUM and ANALYZE to autovacuum, if queries can wait for it: {no_vacuum}."),
            RemedySentence("Leave the checkpoint to the server: {no_checkpoint}."),
        ),
        _AGAIN,
        _POPULATE,
    ),
    "load-replace": Advice(
        "the load's time creates the new table's indexes and keys, and exchanges the tables",
        _MORE_FOR_BUILDS,
        _AGAIN,
        _POPULATE,
    ),
    "load-store": Advice(
        "the load's time runs the statement that stores the staged rows",
        (
            RemedySentence(
                "See the plan of {statement} with EXPLAIN, and give it the indexes that it looks up and enough "
                "work_mem."
            ),
            RemedySentence("In place of {truncate}: {replace}, which creates the indexes after the rows."),
            RemedySentence(
                "If the load brings most of the table's rows, create the indexes that the mode does not need after "
                "them: {rebuild}."
            ),
            RemedySentence("A faster disk, and more memory for the table and its indexes, shorten the statement."),
        ),
        _AGAIN,
        _COUNTED,
    ),
}


# A diagnosis is reported only if it is about at least this share of a load's time.
_LEAST_SHARE = 0.1

# A verdict on a load names a limit only if the limit cost at least this share of the load's time. At this share, the
# load would take two thirds of its time without the limit, unless another limit took its place.
_LEAST_VERDICT_SHARE = 1 / 3

# The server waits for the load if its sessions wait for their client at least this share of their active time.
_LEAST_STARVED = 0.5

# More sessions would make a load faster if its sessions compute, and at least this part of the processors is idle.
_IDLE_CPUS = 0.2

# Sessions count as computing if they are without a wait for at least this share of their active time. The share is
# rarely more than two thirds, because delays by busy processors are sampled as waits too.
_LEAST_COMPUTING = 0.4

_NAMES_SHOWN = 3

_GUESS: Confidence = "too few samples"

# Diagnoses from samples that are not reported for a load. The loader's counts explain the same better, because they
# include the client's side.
_EXPLAINED_BY_COUNTS = frozenset({"client-bound", "cpu-bound", "few-sessions", *REMARKS})

# The diagnosis of each step before and after the rows, by the name under which a load counts the step's time.
OF_STEPS = {"changes": "load-indexes", "upkeep": "load-upkeep", "store": "load-store", "replace": "load-replace"}

# Diagnoses that explain why a load waits for its server.
_SAYS_WHY = frozenset({"load-server-cpu", "load-few-sessions", "load-network", "load-foreign-keys", "load-triggers"})


@slotted
class LoadCase:
    """A load's counts, and its samples."""

    counts: LoadCounts
    # The findings from the samples, None if there are too few samples.
    findings: Findings | None
    # The server's number of CPUs, None if it is not known.
    cpu_count: int | None

    @property
    def accounts(self) -> LoadAccounts:
        """Return what the loader counted."""
        return self.counts.accounts

    @property
    def setting(self) -> LoadConditions:
        """Return what cost time for each row while rows were loaded."""
        return self.counts.setting

    @property
    def rows_share(self) -> float:
        """Return the part of the load's time in which rows are sent, 0 to 1."""
        return self.accounts.rows_s / self.accounts.elapsed_s if self.accounts.elapsed_s else 0.0

    def session_share(self, seconds: float) -> float:
        """Return the share of the load's time that its sessions spent on something, 0 to 1."""
        total_s = sum(astuple(self.accounts.sessions))
        return self.rows_share * seconds / total_s if total_s else 0.0

    def reader_share(self, seconds: float) -> float:
        """Return the share of the readers' time that these seconds are, 0 to 1.

        Time in which readers wait for sessions does not count.
        """
        readers = self.accounts.readers
        working_s = sum(astuple(readers)) - readers.queueing_s
        return seconds / working_s if working_s else 0.0

    @property
    def server_s(self) -> float:
        """Return the seconds that sessions waited for the server to take rows and to store them."""
        return self.accounts.sessions.sending_s + self.accounts.sessions.finishing_s

    def wait_share(self, wait: str) -> float:
        """Return the share of the sessions' active time in a wait event, 0 if there are too few samples."""
        if self.findings is None or self.findings.activity.samples < FEWEST_SAMPLES:
            return 0.0
        waits = self.findings.activity.waits
        return sum(part.share for part in waits if part.name.lower() == wait)

    def conclude(
        self, code: str, share: float, evidence: list[Evidence], *, is_sampled: bool = False, **words: str
    ) -> Diagnosis:
        """Return a diagnosis that rests on counts and, if `is_sampled`, also on samples."""
        advice = LOAD_ADVICE[code]
        return Diagnosis(
            code=code,
            claim=f"{100 * share:.0f} % of {advice.claim.format(**words)}",
            share=share,
            evidence=tuple(evidence),
            samples=self.findings.activity.samples if is_sampled and self.findings is not None else 0,
            confidence="high",
            remedy=write_remedy(advice.remedy, self.setting, words),
            proof=advice.proof,
            source=advice.source,
        )


def find_verdict(found: Sequence[Diagnosis], accounts: LoadAccounts, tuning: LoadTuning) -> tuple[Diagnosis, ...]:
    """Return the diagnoses that are reported as a verdict on the load.

    For a short or small load it has only what each row pays for.
    """
    size_bytes = max(accounts.bytes_read, accounts.bytes_copied)
    certain = [each for each in found if each.rank >= _LEAST_VERDICT_SHARE and each.confidence != _GUESS]
    if accounts.elapsed_s < tuning.least_verdict_s or size_bytes < tuning.least_verdict_bytes:
        # What each row pays for is plain in a shorter load too.
        return tuple(each for each in certain if each.code == "row-costs")
    return tuple(certain)


def judge_load(case: LoadCase) -> tuple[Diagnosis, ...]:
    """Return what limited a load, the largest share first."""
    found = [diagnosis for rule in _RULES for diagnosis in rule(case) if diagnosis.share >= _LEAST_SHARE]
    sampled = [] if case.findings is None else list(case.findings.diagnoses)
    sampled = [diagnosis for diagnosis in sampled if diagnosis.code not in _EXPLAINED_BY_COUNTS]
    is_known = any(each.confidence != _GUESS for each in sampled)
    if any(each.code == "row-costs" for each in sampled):
        # More sessions pay the same for each row.
        found = [diagnosis for diagnosis in found if diagnosis.code != "load-few-sessions"]
    if is_known or any(each.code in _SAYS_WHY for each in found):
        found = [diagnosis for diagnosis in found if diagnosis.code != "load-server"]
    return tuple(sorted(rank([*found, *sampled]), key=lambda each: each.confidence == _GUESS))


def judge_recording(recording: Recording, found: Findings) -> Findings:
    """Return the findings of a recording. If it is of a load, add the findings from the loader's counts.

    The samples of the recording must have been read already.
    """
    if recording.load is None:
        return found
    case = LoadCase(counts=recording.load, findings=found, cpu_count=recording.header.cpu_count)
    return replace(found, diagnoses=judge_load(case))


def _source(case: LoadCase) -> Iterator[Diagnosis]:
    """Find what limits the readers if sessions wait for blocks: the source, decompression, or cutting records."""
    accounts, readers = case.accounts, case.accounts.readers
    share = case.session_share(accounts.sessions.waiting_s)
    rate = number("read from the source", accounts.bytes_read / (accounts.rows_s or 1.0) / MB, "MB/s")
    waiting = number(
        "sessions that wait for records, on average", accounts.sessions.waiting_s / (accounts.rows_s or 1.0)
    )
    count = number("readers", accounts.reader_count)
    spent = {
        "load-source": readers.reading_s,
        "load-decompression": readers.decompressing_s,
        "load-cutting": readers.cutting_s,
    }
    code = max(spent, key=lambda name: spent[name])
    part = number("of the readers' time", 100 * case.reader_share(spent[code]), "%")
    yield case.conclude(code, share, [rate, part, count, waiting])


def _encoding(case: LoadCase) -> Iterator[Diagnosis]:
    accounts = case.accounts
    share = case.session_share(accounts.sessions.encoding_s)
    used = number("processors of the client in use", accounts.client_cpu_s / (accounts.elapsed_s or 1.0))
    yield case.conclude("load-encoding", share, [used, number("processors of the client", accounts.client_cpus)])


def _committing(case: LoadCase) -> Iterator[Diagnosis]:
    share = case.session_share(case.accounts.sessions.committing_s)
    yield case.conclude("load-commit", share, [number("in COMMIT", case.accounts.sessions.committing_s, "s")])


def _network(case: LoadCase) -> Iterator[Diagnosis]:
    """Find a slow network: the client spends its time sending, while the backends wait for the client."""
    starved = case.wait_share("client:clientread")
    if starved >= _LEAST_STARVED:
        share = case.session_share(case.accounts.sessions.sending_s)
        evidence = [
            number("of the server's sessions' time in Client:ClientRead", 100 * starved, "%"),
            number("sent", case.accounts.bytes_copied / (case.accounts.rows_s or 1.0) / MB, "MB/s"),
        ]
        yield case.conclude("load-network", share * starved, evidence, is_sampled=True)


def _deferred_checks(case: LoadCase) -> Iterator[Diagnosis]:
    """Find slow foreign keys and AFTER triggers, which run at the end of each COPY, while sessions wait for it."""
    share = case.session_share(case.accounts.sessions.finishing_s)
    evidence = [number("waiting for the end of COPY commands", case.accounts.sessions.finishing_s, "s")]
    if case.setting.foreign_keys:
        yield case.conclude("load-foreign-keys", share, evidence, names=_name(case.setting.foreign_keys))
    elif case.setting.triggers:
        yield case.conclude("load-triggers", share, evidence, names=_name(case.setting.triggers))


def _server_processors(case: LoadCase) -> Iterator[Diagnosis]:
    """Find a limit by processors: the server's are all busy, or there are too few sessions to use all of them."""
    computing, cpus = case.wait_share(CPU.lower()), case.cpu_count
    if cpus is None or computing < _LEAST_COMPUTING:
        return
    # If the load keeps foreign keys or triggers, they take the time at the end of COPY commands, and another rule
    # reports that time.
    is_explained = case.setting.foreign_keys or case.setting.triggers
    share = case.session_share(case.accounts.sessions.sending_s if is_explained else case.server_s) * computing
    evidence = [
        number("sessions", case.accounts.session_count),
        number("processors of the server", cpus),
        number("of the sessions' active time without a wait", 100 * computing, "%"),
    ]
    why = case.setting.sessions_why
    if case.accounts.session_count <= (1 - _IDLE_CPUS) * cpus:
        yield case.conclude("load-few-sessions", share, evidence, is_sampled=True, why=f" ({why})" if why else "")
    else:
        words = {"triggers": _name(case.setting.triggers), "indexes": _name(case.setting.droppable)}
        yield case.conclude("load-server-cpu", share, evidence, is_sampled=True, **words)


def _name(names: Sequence[str]) -> str:
    """Return the first names, and how many more there are.

    >>> _name(["a", "b", "c", "d", "e"])
    'a, b, c and 2 more'
    """
    more = len(names) - _NAMES_SHOWN
    return ", ".join(names[:_NAMES_SHOWN]) + (f" and {more} more" if more > 0 else "")


def _server(case: LoadCase) -> Iterator[Diagnosis]:
    """Find that sessions wait for the server. `judge_load` drops this diagnosis if samples say why."""
    accounts = case.accounts
    evidence = [number("sent", accounts.bytes_copied / (accounts.rows_s or 1.0) / MB, "MB/s")]
    kept = [number("indexes kept", len(case.setting.indexes))] if case.setting.indexes else []
    yield case.conclude("load-server", case.session_share(case.server_s), evidence + kept + _describe_io(accounts))


def _describe_io(accounts: LoadAccounts) -> list[Evidence]:
    """Return the I/O and the WAL that the server counted, per second of the time in which rows were sent."""
    io, rows_s = accounts.io, accounts.rows_s or 1.0
    if io is None:
        return []
    of = "by the sessions" if io.is_exact else "by all clients"
    counted = {f"read {of}": io.read_bytes, f"written {of}": io.write_bytes, "WAL": io.wal_bytes}
    found = [number(name, count / rows_s / MB, "MB/s") for name, count in counted.items() if count is not None]
    waited = [] if io.io_s is None else [number(f"in I/O of tables and indexes {of}", io.io_s, "s")]
    return found + waited


def _steps(case: LoadCase) -> Iterator[Diagnosis]:
    """Find the step before or after the rows that takes most of the load's time."""
    for name, seconds in case.accounts.steps_s.items():
        if (code := OF_STEPS.get(name)) is not None:
            yield case.conclude(code, seconds / (case.accounts.elapsed_s or 1.0), [number("this step", seconds, "s")])


_RULES: tuple[Callable[[LoadCase], Iterator[Diagnosis]], ...] = (
    _source,
    _encoding,
    _committing,
    _network,
    _deferred_checks,
    _server_processors,
    _server,
    _steps,
)
