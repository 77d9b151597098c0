"""What recordings mean: who was active, what was waited for, what limits. Pure: values in, values out."""

from penstock.diagnose.activity import Activity, Part, measure_activity
from penstock.diagnose.advice import ADVICE
from penstock.diagnose.rates import Rates, measure_rates
from penstock.diagnose.rules import diagnose

__all__ = ["ADVICE", "Activity", "Part", "Rates", "diagnose", "measure_activity", "measure_rates"]
