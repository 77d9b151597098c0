"""What limits a recorded workload."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.diagnose.case import Case
from penstock.diagnose.commits import find_commit_waits
from penstock.diagnose.sessions import find_client_waits, find_cpu, find_lock_waits
from penstock.diagnose.temp import find_temporary_work

if TYPE_CHECKING:
    from penstock.model.diagnosis import Diagnosis
    from penstock.model.recording import Recording

_RULES = (find_commit_waits, find_lock_waits, find_temporary_work, find_client_waits, find_cpu)


def diagnose(recording: Recording) -> tuple[Diagnosis, ...]:
    """Return what limits the workload, by share of time; what limits nothing, but puzzles, is last."""
    case = Case.of(recording)
    found = [diagnosis for rule in _RULES for diagnosis in rule(case)]
    return tuple(sorted(found, key=lambda each: (each.code == "waits-disagree-with-cpu", -each.share)))
