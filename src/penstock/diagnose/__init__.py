"""Analyzes recordings: which sessions were active, what they waited for, and what limits the workload. Pure."""

from penstock.diagnose.activity import Activity, Part, measure_activity
from penstock.diagnose.examination import Findings, diagnose, examine
from penstock.diagnose.rates import Rates, measure_rates
from penstock.diagnose.rules.advice import ADVICE

__all__ = [
    "ADVICE",
    "Activity",
    "Findings",
    "Part",
    "Rates",
    "diagnose",
    "examine",
    "measure_activity",
    "measure_rates",
]
