"""The sizes and times that a load is tuned by. A user cannot change them; a test passes other ones."""

from __future__ import annotations

from penstock.core.frozen import frozen
from penstock.core.units import GIB, MIB


@frozen
class BatchPlan:
    """How records are divided among transactions and statements.

    A load that is killed loses at most one batch of each session.
    """

    # A session commits after `limit_bytes` or `duration_s`. If both are None, it commits when the load ends.
    limit_bytes: int | None = GIB
    duration_s: float | None = 10.0
    # Whether each batch is all rows of one table, which one session sends.
    is_one_table: bool = False
    # How much one statement of a merge that rejects records merges. It is limited because the server keeps the position
    # of each record in memory.
    merge_portion_bytes: int = 32 * MIB
    # A commit should cost less than 1 % of the time of its batch.
    commits_per_batch: int = 100
    # A COPY command's two round trips should cost less than 0.5 % of its time: it lasts at least this many round
    # trips, and carries at least `chunk_bytes`, because even a local server takes some time to start a COPY.
    round_trips_per_chunk: int = 400
    chunk_bytes: int = 64 * MIB
    # The limit if a command's records are kept in memory because some may have to be sent again.
    kept_chunk_bytes: int = 4 * MIB
    # How long a COPY command stays open without data. A source such as a pipe may be silent for hours, and meanwhile
    # libpq may have read an error of the server that polling the socket does not show.
    silence_s: float = 1.0


@frozen
class LoadTuning:
    """The limits from which a load decides how much work something is worth, and how long it waits."""

    batch: BatchPlan = BatchPlan()
    # If fewer stored bytes are loaded, dropping and rebuilding indexes saves little, and costs catalogue rows
    # (docs/decisions/0013).
    least_dropping_bytes: int = 4 * MIB
    # This is added to the limit for each index and key of a partition, because rebuilding one takes 13 ms and dropping
    # it saves 18 ms for a MB of rows (docs/decisions/0013).
    least_part_bytes: int = MIB // 2
    # A smaller load is sent as text. It takes at most some 0.1 s longer than in the binary format, and its errors name
    # the line at once.
    least_binary_bytes: int = 16 * MIB
    # How many rejected records one sort handles at most, because the server and penstock hold their reasons in memory.
    most_sorted: int = 100_000
    # A check reports at most this many problems, because nobody corrects more by hand.
    most_problems: int = 1000
    # An import that shows no progress for this long has probably no route to S3, which is reported. If the server shows
    # its progress, it is cancelled after the second time.
    import_silence_s: float = 60.0
    import_patience_s: float = 300.0
    # At least this many bytes are claimed at a time from a load by several hosts, in small objects, if enough are left
    # for the other hosts. With fewer, a host would wait for its next look while its first second shows how fast it is.
    least_claim_bytes: int = 32 * MIB
    # The load's own sessions can take this long to end before it can restore changes.
    lock_patience_s: float = 20.0
    # VACUUM of a smaller table is too short to matter, and ends before anybody could read a message about it.
    long_vacuum_bytes: int = 64 * MIB
    # Longer than deadlock_timeout (1 s by default), after which an autovacuum worker that blocks us is cancelled. A
    # load that is complete should not wait much longer for other sessions.
    vacuum_lock_timeout_s: float = 5.0
    # If a load stores fewer bytes, the next checkpoint that the server makes after checkpoint_timeout has little to
    # write.
    least_checkpoint_bytes: int = GIB
    # A smaller load does not look whether its tables were empty: autovacuum freezes so few pages in no time.
    least_freezing_bytes: int = MIB
    # COPY freezes the rows of a smaller load only if --freeze always is given: VACUUM has few pages to write again.
    least_frozen_bytes: int = 64 * MIB
    # Nor of a table with more bytes: it would begin again after a fault, however long it took.
    most_frozen_bytes: int = GIB
    # What limits a shorter or smaller load is not reported: its fixed costs weigh too much, and there is little to
    # gain.
    least_verdict_s: float = 10.0
    least_verdict_bytes: int = 64 * MIB
    # AWS is not asked about a smaller load. The question takes 0.2 s plus the time of AWS's answer, which is more than
    # a better number of sessions can save.
    least_asking_bytes: int = 64 * MIB
    # Importing botocore and its model of RDS takes 0.2 s, and RDS's answer comes on top. On a private network without a
    # route to AWS, a load is delayed by this time.
    aws_patience_s: float = 1.5


DEFAULT_TUNING = LoadTuning()
