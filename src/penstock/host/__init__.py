"""This machine: its processors, as far as this process may use them, and what else results depend on."""

from penstock.host.cpus import cpu_count
from penstock.host.machine import Machine, read_machine

__all__ = ["Machine", "cpu_count", "read_machine"]
