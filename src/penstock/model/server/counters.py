"""The rows of counters that samples have, and the names of those that AWS reports."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

# A row of a statistics view, with the columns of the server's version.
CounterRow: TypeAlias = Mapping[str, object]

# The name under which a sample has CloudWatch's metrics of local storage.
LOCAL_STORAGE = "rds_local_storage"

# The name under which a sample has the active sessions of an RDS instance by Performance Insights.
RDS_LOAD = "rds_load"

# The name under which a sample has CloudWatch's metrics of an RDS instance, and their names.
RDS_METRICS = "rds_metrics"
METRIC_NAMES = (
    *("ReadIOPS", "WriteIOPS", "ReadThroughput", "WriteThroughput", "ReadLatency", "WriteLatency", "DiskQueueDepth"),
    *("BurstBalance", "EBSIOBalance%", "CPUUtilization", "FreeableMemory", "ReplicaLag", "CommitLatency"),
)
