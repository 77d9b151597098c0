"""Analyzes recordings: which sessions were active, what they waited for, and what limits the workload. Pure."""

from penstock.diagnose.activity import measure_activity
from penstock.diagnose.examination import Findings, diagnose, examine
from penstock.diagnose.rates import measure_rates
from penstock.diagnose.rules.advice import ADVICE

__all__ = [
    "ADVICE",
    "Findings",
    "diagnose",
    "examine",
    "measure_activity",
    "measure_rates",
]
