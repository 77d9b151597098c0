"""This machine: the processors that this process may use, memory, disks, and the facts that results depend on."""

from penstock.host.cpus import busy_cpu_s, cpu_count, process_cpu_s
from penstock.host.devices import find_device, find_devices, read_counters
from penstock.host.disks import Disk, measure_disk, measure_files
from penstock.host.machine import Machine, read_machine
from penstock.host.memory import memory_bytes

__all__ = [
    "Disk",
    "Machine",
    "busy_cpu_s",
    "cpu_count",
    "find_device",
    "find_devices",
    "measure_disk",
    "measure_files",
    "memory_bytes",
    "process_cpu_s",
    "read_counters",
    "read_machine",
]
