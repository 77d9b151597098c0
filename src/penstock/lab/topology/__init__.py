"""Runs topologies of real processes: one server, a server with standbys, or a server with six WAL receivers.

shapes defines the members of each topology. state keeps a lab's state file. processes starts and ends processes that
are not servers. parts creates servers, receivers and relays. resources creates volumes and memory limits. lab carries
out the commands. Other packages sample the servers and run the SQL of workloads.
"""

from __future__ import annotations

from penstock.lab.topology.lab import Lab, LabStatus, list_labs

__all__ = ["Lab", "LabStatus", "list_labs"]
