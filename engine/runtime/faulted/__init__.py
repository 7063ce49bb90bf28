"""Faults in a run: an actor dies in the middle of a step, falls silent, is slow, or gets elements and messages late.
``interference`` is the port: it answers which fault happens. ``run_faults`` and ``task_faults`` ask it; ``deaths``
carries out the deaths.

They plug in from above, as the hooks of :mod:`engine.runtime.kernel.hook`; a run in which nothing goes wrong has none
of them.
"""

from __future__ import annotations

from engine.runtime.faulted.deaths import Deaths as Deaths
from engine.runtime.faulted.interference import (
    DROPPED as DROPPED,
    OVERTAKES as OVERTAKES,
    ZOMBIE as ZOMBIE,
    Interference as Interference,
    NotedVisits as NotedVisits,
    ProcessDiedError as ProcessDiedError,
    StruckDown as StruckDown,
    Weights as Weights,
)
from engine.runtime.faulted.run_faults import RunFaults as RunFaults
from engine.runtime.kernel import (
    DELIVERED as DELIVERED,
    JOB_MANAGER as JOB_MANAGER,
    MESSAGES as MESSAGES,
    PROCESS as PROCESS,
    WORKER as WORKER,
)
