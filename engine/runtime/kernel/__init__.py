"""Time and chance: ``kernel`` is the virtual clock with the events still to come, ``choices`` the one source of what
could go another way. The kernel's ``Post`` delivers the messages between tasks and job manager as events;
``long_lived`` keeps Python's garbage collector away from large graphs.
"""

from __future__ import annotations

from engine.runtime.kernel.choices import SCHEDULE, Choice, ChoiceRecorder, PriorityChoices, ReadyEvent, SparseChoices
from engine.runtime.kernel.kernel import DELIVERED, MESSAGES, START_NS, Kernel, Post, ScheduledEvent
from engine.runtime.kernel.long_lived import long_lived

__all__ = [
    "Choice",
    "ChoiceRecorder",
    "DELIVERED",
    "Kernel",
    "MESSAGES",
    "Post",
    "PriorityChoices",
    "ReadyEvent",
    "SCHEDULE",
    "START_NS",
    "ScheduledEvent",
    "SparseChoices",
    "long_lived",
]
