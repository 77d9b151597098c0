"""Topologies of the lab: a server alone, with standbys, or with six receivers of its WAL, made of real processes.

shapes* says what belongs to each, state what is written down of a lab, processes starts and ends what is no server,
members makes servers and receivers, and lab does what is asked. Sampling and SQL of workloads are other rooms'.
"""

from __future__ import annotations

from penstock.lab.topology.lab import Lab, LabStatus, list_labs

__all__ = ["Lab", "LabStatus", "list_labs"]
