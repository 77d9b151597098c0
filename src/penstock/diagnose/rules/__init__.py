"""The rules that read recordings: each names one limit of a workload, with its evidence. Pure."""
