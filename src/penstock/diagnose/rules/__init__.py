"""The rules for workloads. Each module has the rules for some kinds of waits. Pure."""
