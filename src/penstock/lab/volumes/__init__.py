"""What a lab's servers run on, where that is not the machine as it is: throttled volumes, local storage, less memory.

Linux, root. volume makes a volume, cgroup a limit of memory, find says what is there, from the kernel's own lists: so
that all of it is removed, whatever became of the command that made it. Who gets what is topology/'s.
"""
