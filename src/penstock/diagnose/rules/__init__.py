"""The rules for workloads, by what is waited for. Pure."""
