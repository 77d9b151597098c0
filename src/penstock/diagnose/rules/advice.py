"""The texts of each diagnosis, by code. A rule fills in the words in braces. choices.py has what a load can change."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from penstock.diagnose.values import RemedySentence

_BATCH = RemedySentence(
    "Commit {batch}: by COPY, by INSERT of many rows, or by more statements to a transaction.", of_loads=False
)
_COMMIT_ONCE = RemedySentence(
    "Commit once, with {atomic}, if the load may start again from its first row.", of_loads=True
)
_SPILL_LESS = RemedySentence(
    "Have the statement above spill less: an index in the order that it sorts by, or more work_mem for it alone, by "
    "SET LOCAL in its transaction, as far as memory allows for so many sessions.",
    of_loads=False,
)
_MERGE_IN_MEMORY = (
    RemedySentence(
        "A larger work_mem of the role lets merges spill less; index builds of a load spill on purpose.", of_loads=True
    ),
)
_FEWER_INDEXES = RemedySentence("During a load, fewer indexes leave less to read and write: {rebuild}.")
_EACH_PAGE_ONCE = RemedySentence(
    "If a load creates, truncates or replaces the table, COPY FREEZE has each page written once: {freeze}. One session "
    "then sends all rows of a table."
)
_FEWER_CHECKPOINTS = RemedySentence("During a load, fewer checkpoints write fewer full-page images: {bulk_load}.")
_SPILLS_LESS = "record again: waits for BufFileRead and BufFileWrite are below a tenth of active time"
_FEWER_WAITS = "record again: this wait has a smaller share of active time, at more rows and fewer commits per second"
_MANUAL = "https://www.postgresql.org/docs/current/"
_TEMP = f"{_MANUAL}runtime-config-client.html#GUC-TEMP-TABLESPACES"
_ACTIVITY = f"{_MANUAL}monitoring-stats.html#MONITORING-PG-STAT-ACTIVITY-VIEW"
_STORAGE = f"{_MANUAL}monitoring-stats.html#WAIT-EVENT-IO-TABLE"
_SYNCHRONOUS = f"{_MANUAL}warm-standby.html#SYNCHRONOUS-REPLICATION"


@dataclass(frozen=True, slots=True)
class Advice:
    """The texts of one diagnosis."""

    # The text that follows the diagnosis' share of time in the output.
    claim: str
    # Sentences that do not fit a workload are not shown (choices.py).
    remedy: tuple[RemedySentence, ...]
    # How to see that the remedy has worked.
    proof: str
    source: str


# Codes do not change between releases; docs/diagnose.md has a section for each.
ADVICE: Final = {
    "commit-local-flush": Advice(
        "active time waits until the server's own disk has flushed the WAL of commits",
        (
            _BATCH,
            RemedySentence("{clients}", of_loads=False),
            RemedySentence(
                "If a crash of the server may lose what is committed within three times wal_writer_delay (0.6 s), and "
                "what no standby has: SET LOCAL synchronous_commit = off in these transactions, never for the whole "
                "server.",
                of_loads=False,
            ),
            _COMMIT_ONCE,
            RemedySentence("Put pg_wal on a faster volume.", of_loads=True),
        ),
        _FEWER_WAITS,
        f"{_MANUAL}wal-async-commit.html",
    ),
    "commit-standby": Advice(
        "active time waits until synchronous standbys have acknowledged commits",
        (
            _BATCH,
            RemedySentence(
                "If losing the primary may lose what no standby has yet: SET LOCAL synchronous_commit = local in "
                "these transactions.",
                of_loads=False,
            ),
            _COMMIT_ONCE,
            RemedySentence(
                "A shorter way to the standbys, or faster disks of theirs, shorten each commit.", of_loads=True
            ),
        ),
        _FEWER_WAITS,
        _SYNCHRONOUS,
    ),
    "commit-aurora-storage": Advice(
        "active time waits until Aurora's storage has acknowledged commits",
        (
            _BATCH,
            RemedySentence(
                "If a crash or a failover may lose the last commits: SET LOCAL synchronous_commit = off in these "
                "transactions.",
                of_loads=False,
            ),
            _COMMIT_ONCE,
            RemedySentence("penstock commits says what each commit waits for.", of_loads=True),
        ),
        _FEWER_WAITS,
        "https://docs.aws.amazon.com/AmazonRDS/latest/AuroraUserGuide/apg-waits.xactsync.html",
    ),
    "standby-behind": Advice(
        "active time waits for synchronous standbys that do not keep up with the WAL, such as {name}{lags}",
        (
            RemedySentence(
                "See what limits {name}: its disk, its processors, or the network to it. More rows to a commit do "
                "not help; {then}.",
            ),
            _FEWER_INDEXES,
            _FEWER_CHECKPOINTS,
        ),
        "pg_stat_replication shows its flush_lsn within 16 MB of the primary's WAL while the workload runs",
        _SYNCHRONOUS,
    ),
    "standby-missing": Advice(
        "active time waits for synchronous standbys that are missing: {names}",
        (
            RemedySentence(
                "Start {names}, or see why they do not connect. synchronous_standby_names is '{setting}': correct a"
                " name that is wrong, but do not empty it: a failover would lose commits that no standby has. Until "
                "then no commit returns, and one that is cancelled stays committed on this server alone.",
            ),
        ),
        "pg_stat_replication shows enough streaming standbys with sync_state sync or quorum",
        _SYNCHRONOUS,
    ),
    "lock-wait": Advice(
        "active time waits for locks, {holder}",
        (RemedySentence("{release}"),),
        "record again: no waits of class Lock, and these statements take as long as they do alone",
        f"{_MANUAL}explicit-locking.html",
    ),
    "deadlocks": Advice(
        "active time waits for locks of sessions that wait for each other, {rate} deadlocks a second; their "
        "statements: {statements}",
        (
            RemedySentence(
                "Have all transactions take their locks in one order: tables in the same order, and rows in the order "
                "of their key (SELECT … ORDER BY key FOR UPDATE before they change several). Cancelling a session does "
                "not help: after deadlock_timeout the server ends one of them, and its work has to be repeated.",
            ),
        ),
        "pg_stat_database counts no deadlocks while the workload runs",
        f"{_MANUAL}explicit-locking.html#LOCKING-DEADLOCKS",
    ),
    "lock-queue": Advice(
        "active time waits for a table's lock behind {gate}. It waits itself, for {holder}",
        (
            RemedySentence(
                "{cancel}For good: SET lock_timeout = '2s' before such a statement, and repeat it until it succeeds. "
                "While it waits, it keeps everybody from the table who comes later.",
            ),
        ),
        "record again: no waits of class Lock, while the statement is tried with its lock_timeout",
        f"{_MANUAL}runtime-config-client.html#GUC-LOCK-TIMEOUT",
    ),
    "connections-short": Advice(
        "{rate} connections a second are opened, for a few transactions each: each starts a process of the server, "
        "which reads the catalogue again",
        (
            RemedySentence(
                "Keep connections open: a pool in the application, or PgBouncer in front of the server, with about two "
                "server connections to a processor. pool_mode = transaction needs the fewest, but not for sessions "
                "that keep settings, temporary tables or advisory locks.",
            ),
        ),
        "pg_stat_database.sessions grows by less than one a second while the workload runs",
        f"{_MANUAL}monitoring-stats.html#MONITORING-PG-STAT-DATABASE-VIEW",
    ),
    "connections-taken": Advice(
        "all {allowed} connections that ordinary roles may have are taken, {who}{idle}. The server refuses new ones",
        (
            RemedySentence(
                "{end_idle}For good, give the application a pool with fewer connections, in itself or by PgBouncer "
                "(pool_mode = transaction, if no session keeps settings, temporary tables or advisory locks). A larger "
                "max_connections needs a restart, and memory for each.",
            ),
        ),
        "connections stay below max_connections without those that are reserved, while the workload runs",
        f"{_MANUAL}runtime-config-connection.html#GUC-MAX-CONNECTIONS",
    ),
    "client-bound": Advice(
        "the time of statements and transactions waits for clients, to send or to read",
        (
            RemedySentence(
                "Look at the client and at the network to it: {how}, do not compute or call other services within a"
                " transaction, and run the client near the server.",
            ),
            RemedySentence("{gap}"),
            RemedySentence("{busy}"),
        ),
        "record again: waits of class Client are below half of the time, at more rows per second",
        _ACTIVITY,
    ),
    "outside-wait": Advice(
        "active time waits for {name}, inside of statements",
        (
            RemedySentence(
                "What waits is in the statement above, or in a function or trigger that it calls: an extension asks "
                "another server (dblink, postgres_fdw), or pg_sleep is called. See that server and the way to it, and "
                "ask it once for many rows, not in a trigger for each."
            ),
        ),
        "record again: these waits are below a tenth of active time",
        f"{_MANUAL}monitoring-stats.html#WAIT-EVENT-EXTENSION-TABLE",
    ),
    "cpu-bound": Advice(
        "active time is spent on processors (sessions without a wait), and all processors are in use",
        (
            RemedySentence(
                "Make the statement above do less (EXPLAIN (ANALYZE, BUFFERS) shows where its time goes), use fewer"
                " sessions, or a server with more processors.",
            ),
        ),
        "record again: active sessions without a wait stay below the processors, at as many statements per second",
        _ACTIVITY,
    ),
    "few-sessions": Advice(
        "active time computes in COPY commands, each of which uses one processor, and there are fewer than processors",
        (
            RemedySentence(
                "Load by more sessions: several files, or parts of one file, at a time. penstock load does that "
                "with one file.",
            ),
        ),
        "record again: more sessions compute at a time, at more rows per second",
        f"{_MANUAL}populate.html",
    ),
    "temp-spill": Advice(
        "active time reads and writes temporary files",
        (
            _SPILL_LESS,
            *_MERGE_IN_MEMORY,
            RemedySentence("penstock temp usage shows the statements, and on which disk their files lie."),
        ),
        _SPILLS_LESS,
        _TEMP,
    ),
    "temp-spill-on-data-volume": Advice(
        "active time reads and writes temporary files on {device}, which has the data too and is busy",
        (
            _SPILL_LESS,
            *_MERGE_IN_MEMORY,
            RemedySentence(
                "Place temporary work on a local disk with penstock temp place DIR; penstock temp replay measures "
                "what that gains.",
            ),
        ),
        _SPILLS_LESS,
        _TEMP,
    ),
    "temp-disk-slow": Advice(
        "active time waits for temporary files on {device}, a disk of their own, which is busy",
        (
            _SPILL_LESS,
            *_MERGE_IN_MEMORY,
            RemedySentence("Use a faster disk for temporary files."),
            RemedySentence("Use fewer sessions at a time: {fewer_sessions}."),
        ),
        _SPILLS_LESS,
        _TEMP,
    ),
    "temp-file-limit": Advice(
        "active time is of sessions with temporary files, whose statements fail at temp_file_limit ({setting})",
        (
            _SPILL_LESS,
            RemedySentence("Or a larger limit for their role, as far as the disk has room: see the errors in its log."),
        ),
        "record again: pg_stat_database counts no rollbacks, and no statement fails with SQLSTATE 53400",
        f"{_MANUAL}runtime-config-resource.html#GUC-TEMP-FILE-LIMIT",
    ),
    "temp-space-low": Advice(
        "active time is of sessions with temporary files on {device}, which had {free} free at the least{when}",
        (
            RemedySentence(
                "A statement that finds the disk full fails. Set temp_file_limit for these roles, give their "
                "statements less to sort, or let fewer of them run at a time.",
            ),
        ),
        "free space stays above a tenth of the disk",
        f"{_MANUAL}runtime-config-resource.html#GUC-TEMP-FILE-LIMIT",
    ),
    "volume-iops": Advice(
        "active time waits for I/O on {device}, which serves requests at {reached}",
        (
            RemedySentence(
                "Use a volume with more IOPS (penstock storage plan names them).",
            ),
            _FEWER_INDEXES,
            _EACH_PAGE_ONCE,
            _FEWER_CHECKPOINTS,
        ),
        "record again: these waits fall, at more requests per second or at more rows per request",
        _STORAGE,
    ),
    "volume-throughput": Advice(
        "active time waits for I/O on {device}, which moves bytes at {reached}",
        (
            RemedySentence(
                "Use a volume with more throughput (penstock storage plan names them). Full-page images are smaller"
                " with wal_compression.",
            ),
            _EACH_PAGE_ONCE,
            _FEWER_CHECKPOINTS,
        ),
        "record again: these waits fall, at more MB/s or at more rows per MB",
        _STORAGE,
    ),
    "instance-limit": Advice(
        "active time waits for I/O on {device}, which is at {reached}; its volume could do more",
        (
            RemedySentence(
                "Use a larger instance class: another volume does not help. penstock rds show has the limits of the"
                " class.",
            ),
            _FEWER_INDEXES,
            _EACH_PAGE_ONCE,
            _FEWER_CHECKPOINTS,
        ),
        "record again: these waits fall, at more requests or bytes per second",
        "https://docs.aws.amazon.com/ebs/latest/userguide/ebs-io-characteristics.html",
    ),
    "volume-balance": Advice(
        "active time waits for I/O on {device}, whose burst balance is spent {when}; it then does {iops} IOPS",
        (
            RemedySentence(
                "Use a volume without a burst balance, such as gp3, or a larger one, before a load that lasts "
                "longer. penstock rds show has the storage of an instance.",
            ),
        ),
        "record again: the volume does no more than its sustained IOPS, or has no balance to spend",
        "https://docs.aws.amazon.com/AmazonRDS/latest/UserGuide/CHAP_Storage.html",
    ),
    "data-io": Advice(
        "active time waits for I/O of tables and indexes; {why}",
        (
            RemedySentence("{remedy}"),
            _FEWER_INDEXES,
            _EACH_PAGE_ONCE,
            _FEWER_CHECKPOINTS,
        ),
        "record again: these waits fall, at more rows per second",
        _STORAGE,
    ),
    "checkpoints-forced": Advice(
        "active time waits for I/O while checkpoints follow each other, because WAL reaches max_wal_size ({setting})",
        (
            RemedySentence(
                "Raise max_wal_size: {bulk_load} does that for a load and restores it (penstock settings diff shows"
                " what it would set).",
            ),
            RemedySentence("{advice}"),
        ),
        "record again: checkpoints are timed, not requested, and WAL has fewer full-page images",
        f"{_MANUAL}wal-configuration.html",
    ),
    "checkpoints-timed": Advice(
        "active time waits for I/O while checkpoints follow each other, because checkpoint_timeout is {setting}",
        (RemedySentence("{advice} After a crash the server then needs longer to start."),),
        "record again: WAL has fewer full-page images, and fewer bytes per row",
        f"{_MANUAL}wal-configuration.html",
    ),
    "index-reads": Advice(
        "active time waits for blocks of indexes that are not in memory{room}; most are read from {index} of {table}",
        (
            RemedySentence(
                "If a load brings most of the table's rows, create the index after them, in order: {rebuild}."
            ),
            RemedySentence("Give the server more shared_buffers, or insert rows in the order of the index."),
        ),
        "record again: fewer blocks of the index are read for each row",
        f"{_MANUAL}populate.html",
    ),
    "wal-write": Advice(
        "active time waits until WAL is written or flushed, in transactions that write much",
        (
            RemedySentence(
                "Put pg_wal on a volume of its own{log_volume}, or on a faster one.",
            ),
            RemedySentence("{images}"),
            RemedySentence("{forced}"),
            _FEWER_INDEXES,
        ),
        "record again: waits for WAL are below a tenth of active time, at more rows per second",
        f"{_MANUAL}wal-internals.html",
    ),
    "relation-extension": Advice(
        "active time waits to extend a table that several sessions fill",
        (
            RemedySentence(
                "Use fewer sessions ({fewer_sessions}), or partitions that are filled by different sessions."
            ),
            RemedySentence("PostgreSQL 16 and later extend tables by more blocks at a time."),
        ),
        "record again: waits for Lock:extend are below a tenth of active time",
        f"{_MANUAL}monitoring-stats.html#WAIT-EVENT-LOCK-TABLE",
    ),
    "lwlock-contention": Advice(
        "active time waits for one of the server's internal locks, {name}",
        (
            RemedySentence("Use fewer sessions at a time: {fewer_sessions}.", of_loads=True),
            RemedySentence("{way}", of_loads=False),
        ),
        "record again: waits for this lock are below a tenth of active time, at as many rows per second",
        f"{_MANUAL}monitoring-stats.html#WAIT-EVENT-LWLOCK-TABLE",
    ),
    "autovacuum": Advice(
        "active time is of autovacuum on {table}, which clients use meanwhile, while processors or I/O are short",
        (
            RemedySentence(
                "During a load, keep autovacuum from the table until the load's own VACUUM at the end: "
                "{pause_autovacuum}.",
            ),
            RemedySentence(
                "A larger autovacuum_vacuum_cost_delay for this table spreads the work. Never turn autovacuum off."
            ),
        ),
        "record again: no autovacuum worker is active on the table, at more rows per second",
        f"{_MANUAL}routine-vacuuming.html#AUTOVACUUM",
    ),
    "other-programs": Advice(
        "other programs use {others} of {cpus} processors{clients}",
        (
            RemedySentence(
                "See which they are (top on the host); the workload's own clients are among them if they run here. "
                "What is above holds for the server beside them: record again without them to see it alone.",
            ),
        ),
        "with other programs stopped, the server's processes are what uses the processors",
        "docs/diagnose.md",
    ),
    "temp-disk-full": Advice(
        "active time is of sessions with temporary files on {device}, which was full ({size}): their statements fail, "
        "and what they used is free again",
        (
            _SPILL_LESS,
            RemedySentence(
                "A larger disk for temp_tablespaces, or temp_file_limit for these roles, so that one statement does not"
                " make others fail."
            ),
        ),
        "record again: the device always has a tenth of its space free, and no statement fails with SQLSTATE 53100",
        _TEMP,
    ),
    "autovacuum-io": Advice(
        "active time is of autovacuum on {table}, which reads and writes {times} all sessions, while processors or I/O "
        "are short",
        (RemedySentence("{less}"), RemedySentence("Never turn autovacuum off: what it has not done waits for it.")),
        "record again: autovacuum reads and writes less than the sessions, at more rows per second",
        f"{_MANUAL}routine-vacuuming.html#AUTOVACUUM",
    ),
    "autovacuum-wraparound": Advice(
        "active time is in the way of autovacuum on {table} to prevent wraparound, {progress}",
        (
            RemedySentence(
                "{held}It must end, and begins again if it is cancelled: make it faster, not slower, and do not pause "
                "it."
            ),
            RemedySentence(
                "From PostgreSQL 16 on: {set_delay}; a table with such a setting of its own does not follow it. "
                "Otherwise: end the worker, {end}, and at once run VACUUM {table} in a session, which does not pause. "
                "FREEZE and FULL would take longer."
            ),
            RemedySentence("{less}"),
        ),
        "age(relfrozenxid) of the table in pg_class is far below autovacuum_freeze_max_age, and no worker is on it",
        f"{_MANUAL}routine-vacuuming.html#VACUUM-FOR-WRAPAROUND",
    ),
    "xmin-held": Advice(
        "active time is of statements on {table}, whose dead rows VACUUM may not remove because of {holder}",
        (RemedySentence("{release}"), RemedySentence("VACUUM then removes the rows; a faster VACUUM does not.")),
        "record again: the table has few dead rows (n_dead_tup), and these statements take less time",
        f"{_MANUAL}routine-vacuuming.html#VACUUM-FOR-SPACE-RECOVERY",
    ),
    "foreign-key-unindexed": Advice(
        "active time is of one statement, which looks for rows of {table} that refer to {referenced} and reads "
        "all of it for each row: its foreign key has no index",
        (RemedySentence("CREATE INDEX CONCURRENTLY ON {table} ({columns})."),),
        "record again: this statement takes a small share, and the table is read by the index",
        f"{_MANUAL}ddl-constraints.html#DDL-CONSTRAINTS-FK",
    ),
    "stale-statistics": Advice(
        "active time is of one statement, whose table {table} has changed since its last ANALYZE: its plan loops over "
        "{looped} as for far fewer rows",
        (
            RemedySentence(
                "ANALYZE {table}, which locks out neither readers nor writers. For good, see why autovacuum does not "
                "come: autovacuum_enabled and autovacuum_analyze_scale_factor of the table."
            ),
        ),
        "record again: this statement takes less time",
        f"{_MANUAL}routine-vacuuming.html#VACUUM-FOR-STATISTICS",
    ),
    "bloat": Advice(
        "active time is of statements on {table}, which read {times} times the pages that its rows fill: {why}",
        (RemedySentence("{plain}"), RemedySentence("{full}"), RemedySentence("{keep}")),
        "record again: fewer blocks of the table are read for each row, and these statements take less time",
        f"{_MANUAL}routine-vacuuming.html#VACUUM-FOR-SPACE-RECOVERY",
    ),
    "row-costs": Advice(
        "active time is of one statement, which stores rows in {table}; apart from the row itself, each pays most for "
        "{what}",
        (RemedySentence("{how}"), RemedySentence("{rest}")),
        "record again: the statement takes less time for each row",
        f"{_MANUAL}populate.html",
    ),
    "no-statistics": Advice(
        "active time is of one statement, whose table {table} has never been analyzed: its plan loops over {looped} as "
        "for far fewer rows",
        (RemedySentence("VACUUM (ANALYZE) {table}, after each load that fills it; penstock load does so by itself."),),
        "record again: this statement takes less time",
        f"{_MANUAL}routine-vacuuming.html#VACUUM-FOR-STATISTICS",
    ),
    "jit": Advice(
        "active time is of one statement, which the server compiles each time for longer than that gains",
        (
            RemedySentence(
                "For the role that runs it: ALTER ROLE ... SET jit = off, or a larger jit_above_cost. Its cost is "
                "estimated far above what it takes: see whether its tables' statistics are new."
            ),
        ),
        "record again: this statement takes less time",
        f"{_MANUAL}jit-decision.html",
    ),
    "statement-spills": Advice(
        "active time is of one statement, whose sorts or hashes write temporary files",
        (_SPILL_LESS,),
        "record again: temp_blks_written of this statement in pg_stat_statements stays as it is",
        _TEMP,
    ),
    "sequential-scan": Advice(
        "active time is of one statement, which searches {table} by reading all of it",
        (
            RemedySentence(
                "See the plan of the statement above by {explain}. If its WHERE keeps few of the rows, and not by LIKE "
                "'%...', create an index on its columns, by CREATE INDEX CONCURRENTLY, so that others can write "
                "meanwhile."
            ),
            RemedySentence("{despite}"),
        ),
        "record again: this statement takes less time, and seq_tup_read of the table grows by less",
        f"{_MANUAL}indexes-intro.html",
    ),
    "waits-disagree-with-cpu": Advice(
        "active time waits by the samples, but the host is as busy as without waits",
        (
            RemedySentence(
                "See what uses the processors (top on the host, OS processes on RDS): other programs and the "
                "server's own background processes are in no sample, and a short wait is partly work. Do not add "
                "processors for it.",
            ),
        ),
        "with other programs stopped, the host's busy processors are near the active sessions without a wait",
        "docs/diagnose.md",
    ),
}
