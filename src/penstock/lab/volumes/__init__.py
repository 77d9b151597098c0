"""Creates throttled volumes, local storage and memory limits for the servers of a lab.

Only on Linux, and only for root. volume creates a volume, cgroup creates a memory limit, and find lists what exists.
The lists come from the kernel, so everything is removed even if the command that created it was killed. topology/
decides which server gets what.
"""
