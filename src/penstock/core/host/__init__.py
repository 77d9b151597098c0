"""This machine: its processors, memory, control groups and disks, and this process."""
