"""The article's measurements and machine, as data.

They were not measured here, and are shown with their source. Pure.
"""

from __future__ import annotations

from penstock.units import GIB

SOURCE = (
    "Introducing Optimized Reads for Amazon RDS for PostgreSQL (AWS Database Blog, 2023): db.m5.4xlarge on EBS against "
    "db.m5d.4xlarge with local NVMe, Single-AZ, three tables of 100 M rows by sysbench"
)

SHORT_SOURCE = "RDS, db.m5.4xlarge and db.m5d.4xlarge (AWS, 2023)"

VCPUS = 16
MEMORY_BYTES = 64 * GIB
ROWS = 100_000_000

# The provisioned IOPS, and the instance's dedicated bandwidth of 4,750 Mbps.
IOPS = 5_000
BYTES_PER_S = 4_750_000_000 // 8

# Minutes by sessions: with temporary files on EBS, and on local storage.
MINUTES = {
    4: (11.3, 10.6),
    8: (22.0, 16.5),
    12: (40.4, 23.4),
    16: (66.2, 32.0),
}

# Temporary files in GB by sessions: the total that all sessions wrote, not the largest amount at one time.
TEMP_GB = {4: 1_090, 8: 2_268, 12: 3_449, 16: 4_629}

# The article's queries. The last element is its LIMIT, in rows of its tables.
QUERIES = (
    ("distinct", "sbtest1", "SELECT DISTINCT pad FROM {schema}.sbtest1 LIMIT {limit}", 65_000_000),
    (
        "group and order",
        "sbtest2",
        (
            "SELECT c1.pad, sum(c1.c), avg(c1.k)"
            " FROM (SELECT pad, length(c) AS c, k FROM {schema}.sbtest2 LIMIT {limit}) AS c1 GROUP BY c1.pad ORDER BY 3"
        ),
        100_000_000,
    ),
    ("order", "sbtest3", "SELECT k, length(pad) FROM {schema}.sbtest3 ORDER BY pad LIMIT {limit}", 50_000_000),
)
