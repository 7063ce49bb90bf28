"""Time and chance: ``kernel`` is the virtual clock with the events still to come, ``choices`` the one source of what
could go another way. The kernel's ``Post`` delivers the messages between tasks and job manager as events;
``long_lived`` keeps Python's garbage collector away from large graphs.
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
from engine.runtime.kernel.kernel import (
    DELIVERED as DELIVERED,
    MESSAGES as MESSAGES,
    START_NS as START_NS,
    Kernel as Kernel,
    Post as Post,
    ScheduledEvent as ScheduledEvent,
)
from engine.runtime.kernel.long_lived import long_lived as long_lived
