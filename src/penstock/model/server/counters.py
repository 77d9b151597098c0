"""The rows of counters in samples, and the names of the counters that AWS reports."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

# A row of a statistics view, with the columns of the server's version.
CounterRow: TypeAlias = Mapping[str, object]

# A sample has CloudWatch's metrics of local storage under this name.
LOCAL_STORAGE = "rds_local_storage"

# A sample has the active sessions of an RDS instance, as Performance Insights counts them, under this name.
RDS_LOAD = "rds_load"

# A sample has CloudWatch's metrics of an RDS instance under this name. The names of the metrics follow.
RDS_METRICS = "rds_metrics"
METRIC_NAMES = (
    *("ReadIOPS", "WriteIOPS", "ReadThroughput", "WriteThroughput", "ReadLatency", "WriteLatency", "DiskQueueDepth"),
    *("BurstBalance", "EBSIOBalance%", "CPUUtilization", "FreeableMemory", "ReplicaLag", "CommitLatency"),
)
