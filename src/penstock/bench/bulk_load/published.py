"""The article's machine and measurements, as data.

They were not measured here, and are shown with their source. Pure.
"""

from __future__ import annotations

from typing import Literal

from penstock.frozen import frozen
from penstock.units import GIB, MB, MIB

SOURCE = (
    "AWS Database Blog on bulk loading into Amazon RDS for PostgreSQL: PostgreSQL 14, db.r6g.2xlarge, Multi-AZ, IMDb's "
    "seven files from S3 by aws_s3.table_import_from_s3"
)

SHORT_SOURCE = "RDS for PostgreSQL 14, db.r6g.2xlarge"

VCPUS = 8
MEMORY_BYTES = 64 * GIB

# The gzip file of title.principals. The scale of data and memory is the size of the file here over this size.
PRINCIPALS_BYTES = 361 * MB

# The most that the instance class transfers between the instance and its volumes.
INSTANCE_BYTES_PER_S = 593_750_000

# RDS's default of max_wal_size, which holds data.
MAX_WAL_BYTES = 2048 * MIB

Load = Literal[
    "aws_s3",
    "one psql",
    "psql in turn",
    "psql in parallel",
    "aws_s3 with settings",
    "penstock",
    "penstock with settings",
]


@frozen
class Step:
    """One load of the article, in its order."""

    name: str
    load: Load
    # The volume as `lab up --volume` names it.
    volume: str
    # The article's time, None if it has none.
    published_s: float | None = None
    # The article's largest queue of the volume, None if it has none.
    published_queue: int | None = None
    # What else the article says about this load.
    published: str = ""
    # What is different here. In every step, the article also imports inside the server, which is not repeated.
    differs: str = ""
    # Whether the server is killed at the end of the load, to measure a recovery.
    crashes: bool = False

    @property
    def is_one_file(self) -> bool:
        """Return whether only title.principals is loaded."""
        return self.load == "one psql" or self.is_import

    @property
    def is_import(self) -> bool:
        """Return whether the server imports from S3, as in the article."""
        return self.load in ("aws_s3", "aws_s3 with settings")


FIRST = "gp2:250GiB:spent"
LARGE = "gp2:1500GiB:spent"
PROVISIONED = "io1:1500GiB:10000"

# The article's own call is how its server imports title.principals.
_OWN_CALL_DIFFERS = (
    "as in the article, FORMAT csv takes \\N for text and removes quotes; the functions are the lab's stand-in"
)

STEPS = (
    Step(
        name="one file by aws_s3, gp2 250 GiB",
        load="aws_s3",
        volume=FIRST,
        published_s=345,
        published_queue=2048,
        differs=_OWN_CALL_DIFFERS,
    ),
    Step(
        name="one file, gp2 250 GiB",
        load="one psql",
        volume=FIRST,
        published_s=345,
        published_queue=2048,
        differs="the burst bucket is spent; the article does not give its balance, and a full one lasts 2,400 s",
    ),
    Step(
        name="one file, gp2 1,500 GiB",
        load="one psql",
        volume=LARGE,
        published_s=62,
        published_queue=200,
        differs="4,500 IOPS without burst; the article's four stripes may have had up to 12,000",
    ),
    Step(
        name="one file, 10,000 IOPS",
        load="one psql",
        volume=PROVISIONED,
        published_s=62,
        published_queue=170,
        differs="the article does not give the size of its io1 volume",
    ),
    Step(
        name="seven files in turn",
        load="psql in turn",
        volume=PROVISIONED,
        published_s=129,
        published="CPU 15 %, 200 MB/s written",
        differs="client and server share the processors",
    ),
    Step(
        name="seven files in parallel",
        load="psql in parallel",
        volume=PROVISIONED,
        published_s=57,
        published="CPU 90 %, 400 to 800 MB/s written",
        differs="client and server share the processors",
    ),
    Step(
        name="one file by aws_s3, bulk-load",
        load="aws_s3 with settings",
        volume=PROVISIONED,
        published_s=44,
        published="345 s down to 44 s over all its steps",
        differs="max_wal_size by the WAL that penstock expects, the article 4 GB",
    ),
    Step(
        name="seven files, penstock",
        load="penstock",
        volume=PROVISIONED,
        differs="not in the article",
        crashes=True,
    ),
    Step(
        name="seven files, penstock, bulk-load",
        load="penstock with settings",
        volume=PROVISIONED,
        differs="not in the article, which changes the settings for one file",
        crashes=True,
    ),
)

RECOVERY = "recovery of 10 minutes or more is possible with the settings"
