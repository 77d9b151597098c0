"""Reads facts of this machine: the processors and the memory that this process may use, disks, and other hardware."""

from penstock.host.cpus import busy_cpu_s, cpu_count, process_cpu_s
from penstock.host.devices import Disk, find_device, find_devices, measure_disk, measure_files, read_counters
from penstock.host.machine import Machine, read_machine
from penstock.host.memory import keep_freed_memory, memory_bytes

__all__ = [
    "Disk",
    "Machine",
    "busy_cpu_s",
    "cpu_count",
    "find_device",
    "find_devices",
    "keep_freed_memory",
    "measure_disk",
    "measure_files",
    "memory_bytes",
    "process_cpu_s",
    "read_counters",
    "read_machine",
]
