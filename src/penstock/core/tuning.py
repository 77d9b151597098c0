"""The sizes and times that tune a load. Users cannot change them; tests pass their own."""

from __future__ import annotations

from penstock.core.slotted import slotted
from penstock.core.units import GIB, MIB


@slotted
class BatchPlan:
    """How records are divided among transactions and statements.

    A load that is killed loses at most one batch of each session.
    """

    # A session commits after `limit_bytes` or `duration_s`. If both are None, it commits when the load ends.
    limit_bytes: int | None = GIB
    duration_s: float | None = 10.0
    # Whether a batch consists of all rows of one table, which are all sent by the same session.
    is_one_table: bool = False
    # How many bytes of records one statement merges, in a merge that rejects records. The server keeps the position of
    # each of these records in memory.
    merge_portion_bytes: int = 32 * MIB
    # A batch lasts at least as long as this number of commits, so that a commit costs at most 1 % of the batch's time.
    commits_per_batch: int = 100
    # A COPY command lasts at least as long as this number of round trips, so that its two round trips cost at most 0.5
    # % of its time. It also carries at least `chunk_bytes`, because even a local server takes some time to start a
    # COPY.
    round_trips_per_chunk: int = 400
    chunk_bytes: int = 64 * MIB
    # The limit of a COPY command whose records are kept in memory, because some of them may have to be sent again.
    kept_chunk_bytes: int = 4 * MIB
    # How long a COPY command stays open without new data. A source such as a pipe may be silent for hours. When the
    # command ends, an error that the server has reported is seen. Polling the socket does not show an error that libpq
    # has read already.
    silence_s: float = 1.0


@slotted
class LoadTuning:
    """The limits of a load: the sizes from which a step is worth its cost, and how long the load waits."""

    batch: BatchPlan = BatchPlan()
    # Indexes are dropped and rebuilt if a load stores at least this many bytes. With fewer bytes this saves little
    # time, and it costs catalogue rows (docs/decisions/0013).
    least_dropping_bytes: int = 4 * MIB
    # How much `least_dropping_bytes` grows for each index and foreign key of a partition. Rebuilding one index or key
    # takes 13 ms, and dropping it saves 18 ms for each MB of rows (docs/decisions/0013).
    least_part_bytes: int = MIB // 2
    # The smallest load that is sent in the binary format. A smaller one is sent as text: this costs at most 0.1 s, and
    # the errors of text name the line at once.
    least_binary_bytes: int = 16 * MIB
    # The most records that one sort divides into stored and rejected ones. The server and penstock keep the reasons in
    # memory.
    most_sorted: int = 100_000
    # The most problems that a check reports. Nobody corrects more than these by hand.
    most_problems: int = 1000
    # How long an import may make no progress before it is reported: the server has probably no route to S3. After
    # `import_patience_s`, an import is cancelled if the server shows that it has not read any bytes.
    import_silence_s: float = 60.0
    import_patience_s: float = 300.0
    # How many bytes of small objects a host claims at a time from a load by several hosts, if enough are left for the
    # other hosts. At first a host does not know how fast it is. With fewer bytes, a fast host could run out of work
    # before its next claim.
    least_claim_bytes: int = 32 * MIB
    # How long a standby may have the WAL and replay nothing of it before a load that yields no longer waits for it: it
    # is paused or delayed. A query on a standby may delay replay for 30 s (max_standby_streaming_delay).
    replay_patience_s: float = 60.0
    # How often a load that yields looks at the standbys and slots. A look takes the server about a millisecond.
    yield_look_s: float = 1.0
    # How long a load waits for its own lost sessions to end and release their locks, before it restores changes.
    lock_patience_s: float = 20.0
    # The smallest table whose VACUUM is announced. VACUUM of a smaller table ends before anybody could read a message,
    # so it is always run.
    long_vacuum_bytes: int = 64 * MIB
    # How long VACUUM after a load waits for a lock. This is longer than deadlock_timeout (1 s by default), after which
    # the server cancels an autovacuum worker that blocks a session. A complete load should not wait much longer for
    # others.
    vacuum_lock_timeout_s: float = 5.0
    # The smallest load that requests a checkpoint. After a smaller one, the server's next scheduled checkpoint has
    # little to write.
    least_checkpoint_bytes: int = GIB
    # The smallest load that freezes the rows of tables that were empty. Autovacuum needs hardly any time to freeze the
    # few pages of a smaller load.
    least_freezing_bytes: int = MIB
    # The smallest load whose rows COPY freezes without --freeze always. After a smaller load, VACUUM has few pages to
    # write again.
    least_frozen_bytes: int = 64 * MIB
    # The most bytes of one table whose rows COPY freezes without --freeze always. After a failure, such a table must be
    # sent again as a whole.
    most_frozen_bytes: int = GIB
    # The least time and the least bytes of a load that gets a report on what limited it. For a smaller load, there is
    # little to gain.
    least_verdict_s: float = 10.0
    least_verdict_bytes: int = 64 * MIB
    # A sampled load of at least this time is told what each row pays for: keys, triggers and indexes that it keeps.
    least_row_costs_s: float = 4.0
    # The smallest load that asks AWS about the instance. Asking takes 0.2 s plus the wait for AWS's answer. In a
    # smaller load, a better number of sessions saves less than this.
    least_asking_bytes: int = 64 * MIB


DEFAULT_TUNING = LoadTuning()
