"""Faults in a run: who dies in the middle of a step, falls silent, is slow, or gets its elements and messages late.
``interference`` is the port: it answers what goes wrong. ``run_faults``, ``task_faults`` and ``link_faults`` ask it,
``deaths`` carries out who dies.

They plug in from above, as the hooks of :mod:`engine.runtime.hook`; a run in which nothing goes wrong has none of them.
"""

from __future__ import annotations

from engine.runtime.faulted.deaths import Deaths
from engine.runtime.faulted.interference import (
    DELIVERED,
    DROPPED,
    JOB_MANAGER,
    MESSAGES,
    OVERTAKES,
    PROCESS,
    WORKER,
    ZOMBIE,
    Interference,
    ProcessDiedError,
    StruckDown,
)
from engine.runtime.faulted.run_faults import RunFaults

__all__ = [
    "DELIVERED",
    "DROPPED",
    "Deaths",
    "Interference",
    "JOB_MANAGER",
    "MESSAGES",
    "OVERTAKES",
    "PROCESS",
    "ProcessDiedError",
    "RunFaults",
    "StruckDown",
    "WORKER",
    "ZOMBIE",
]
