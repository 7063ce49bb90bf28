"""Time, chance and faults: ``kernel`` is the virtual clock with the events still to come, ``choices`` the one source of
nondeterminism, ``hook`` all that the other rooms know of faults. The kernel's ``Post`` delivers the messages between
tasks and job manager as events.
"""

from __future__ import annotations

from engine.runtime.kernel.choices import (
    SCHEDULE as SCHEDULE,
    Choice as Choice,
    ChoiceRecorder as ChoiceRecorder,
    PriorityChoices as PriorityChoices,
    ReadyEvent as ReadyEvent,
    SparseChoices as SparseChoices,
)
from engine.runtime.kernel.hook import (
    JOB_MANAGER as JOB_MANAGER,
    PROCESS as PROCESS,
    WORKER as WORKER,
    Around as Around,
    Clock as Clock,
    LinkHook as LinkHook,
    Rest as Rest,
    RunHook as RunHook,
    TaskHook as TaskHook,
    around_of as around_of,
    nothing_around as nothing_around,
)
from engine.runtime.kernel.kernel import (
    DELIVERED as DELIVERED,
    MESSAGES as MESSAGES,
    START_NS as START_NS,
    Addressee as Addressee,
    Kernel as Kernel,
    Post as Post,
    ScheduledEvent as ScheduledEvent,
)
