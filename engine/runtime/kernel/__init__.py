"""Time and chance: ``kernel`` is the virtual clock with the events still to come, ``choices`` the one source of what
could go another way. ``post`` delivers the messages between tasks and job manager as events; ``long_lived`` keeps
Python's garbage collector away from large graphs.
"""

from __future__ import annotations

from engine.runtime.kernel.choices import SCHEDULE, Choice, ChoiceRecorder, PriorityChoices, ReadyEvent, SparseChoices
from engine.runtime.kernel.kernel import START_NS, Kernel, ScheduledEvent
from engine.runtime.kernel.long_lived import long_lived
from engine.runtime.kernel.post import DELIVERED, MESSAGES, Post

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
