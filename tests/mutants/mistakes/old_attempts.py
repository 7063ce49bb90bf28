"""Mistakes about attempts that are over: writes, transactions and reports of a zombie."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from engine.runtime.job import JobManager
from operators.databases.memory_database import MemorySession
from operators.files.writing import OpenPartFence
from tests.mutants.mutant import replaced


@contextmanager
def open_part_shared_with_a_zombie() -> Iterator[None]:
    """A restored sink goes on writing the very file that its predecessor may still be writing."""
    with replaced(OpenPartFence, fence=lambda fence, states: list(states)):
        yield


@contextmanager
def database_takes_older_epochs() -> Iterator[None]:
    """The database takes rows and transactions from a subtask that another attempt has taken over."""
    with replaced(MemorySession, _check_epoch=lambda session, holder: None):
        yield


@contextmanager
def end_of_a_zombie_counts() -> Iterator[None]:
    """A task that was given up on reports the end of its input, and its successor counts as ended."""
    reached_end = JobManager.task_reached_end

    def believed(manager: Any, task: Any) -> None:
        disowned, task.disowned = task.disowned, False
        try:
            reached_end(manager, task)
        finally:
            task.disowned = disowned

    with replaced(JobManager, task_reached_end=believed):
        yield
