"""How a bounded job comes to its end: which tasks have read everything, and when they may finish (a pure machine).

Rules (Flink: FLIP-147, final checkpoints)
------------------------------------------
* A task that has come to the end of its data finishes its operators and stays, so that a checkpoint can hold their
  final state. Sinks commit it when that checkpoint is complete; the task may not finish before then.
* A vertex finishes as a whole: when all its subtasks have come to their end, and a checkpoint has completed that began
  after that. Half a finished vertex could not be restored if it has union state, and the other half could never get
  its own checkpoint confirmed: no snapshot of it would be taken. A subtask closes once it may and all its inputs have
  closed; the other vertices run on.
* When all tasks have come to their end, the job asks for one last checkpoint. When it fails the job asks again, but not
  for ever: more than ``final_attempts`` failures in a row fail the job. If a periodic one completes meanwhile, that is
  the last one: it, too, began after the end of all input.
* When tasks must not finish before the job does (checkpoints after tasks finish switched off), all of them stay until
  the last checkpoint.
"""

from __future__ import annotations

from collections.abc import Iterable

from engine.checkpoint.coordinator import TaskId


class EndOfInput:
    """``tasks``: all tasks; ``finish_early``: whether a vertex may finish before the job does; ``final_attempts``: how
    often the last checkpoint is tried in a row."""

    def __init__(self, tasks: Iterable[TaskId], *, finish_early: bool, final_attempts: int) -> None:
        self._vertices: dict[int, list[TaskId]] = {}
        for task in tasks:
            self._vertices.setdefault(task[0], []).append(task)
        self._count = sum(map(len, self._vertices.values()))
        # Vertex -> how many of its subtasks have not come to their end.
        self._left = {vertex: len(subtasks) for vertex, subtasks in self._vertices.items()}
        self._finish_early = finish_early
        self._final_attempts = final_attempts
        self.ended: dict[TaskId, None] = {}
        """Tasks that have come to the end of their data. Without any, no completed checkpoint lets a task finish."""
        self._finished: dict[TaskId, None] = {}
        # Vertex -> the first checkpoint that began after its end.
        self._confirmed_by: dict[int, int] = {}
        # Vertices whose tasks have been told that they may finish.
        self._leaving: dict[int, None] = {}
        self._final_requested = False
        self.final_failures = 0
        """Failures in a row of the last checkpoint."""
        # The first checkpoint that began after the end of all input, once it exists.
        self._final_from = 0

    # --- events ---------------------------------------------------------------------------------------------------

    def deployed(self, tasks: Iterable[TaskId]) -> None:
        """These tasks start anew."""
        for task in tasks:
            if task in self.ended:
                del self.ended[task]
                self._left[task[0]] += 1
            self._finished.pop(task, None)
            self._confirmed_by.pop(task[0], None)
            self._leaving.pop(task[0], None)
        self._final_requested = False
        self.final_failures = 0

    def task_ended(self, task: TaskId, next_checkpoint_id: int) -> None:
        """A task has come to the end of its data. ``next_checkpoint_id``: of the first checkpoint to begin after."""
        self._end(task)
        self._final_from = next_checkpoint_id
        if self._finish_early and not self._left[task[0]]:
            self._confirmed_by[task[0]] = next_checkpoint_id

    def _end(self, task: TaskId) -> None:
        if task not in self.ended:
            self.ended[task] = None
            self._left[task[0]] -= 1

    def task_finished(self, task: TaskId) -> None:
        """A task is closed, whether it came to its end or was stopped."""
        self._end(task)
        self._finished[task] = None
        self._confirmed_by.pop(task[0], None)

    def checkpoint_completed(self, checkpoint_id: int) -> tuple[TaskId, ...]:
        """A checkpoint is complete: the tasks that may finish now."""
        confirmed = [vertex for vertex, first in self._confirmed_by.items() if first <= checkpoint_id]
        for vertex in confirmed:
            del self._confirmed_by[vertex]
            self._leaving[vertex] = None
        return tuple(task for vertex in confirmed for task in self._vertices[vertex])

    def request_final(self) -> bool:
        """All tasks may have come to their end: whether the last checkpoint is to be asked for now."""
        if self._final_requested or not self.all_ended:
            return False
        self._final_requested = True
        return True

    def replaces_final(self, checkpoint_id: int) -> bool:
        """A checkpoint is complete: whether the last one has failed and need not be repeated, because this one, too,
        began after the end of all input."""
        if not self.final_failures or self._final_requested or not self.all_ended:
            return False
        self._final_requested = checkpoint_id >= self._final_from
        return self._final_requested

    def all_leave(self) -> None:
        """All tasks are being told that they may finish."""
        self._leaving = dict.fromkeys(self._vertices)

    def final_failed(self) -> bool:
        """The last checkpoint failed: whether it may be tried again."""
        self._final_requested = False
        self.final_failures += 1
        return self.final_failures < self._final_attempts

    # --- queries --------------------------------------------------------------------------------------------------

    @property
    def all_ended(self) -> bool:
        """Whether every task has come to its end."""
        return len(self.ended) == self._count

    @property
    def all_finished(self) -> bool:
        """Whether every task is closed."""
        return len(self._finished) == self._count

    def is_leaving(self, vertex: int) -> bool:
        """Whether the tasks of a vertex have been told that they may finish: some may be gone."""
        return vertex in self._leaving

    def validate(self) -> None:
        assert len(self.ended) <= self._count, self.ended
        assert self._finished.keys() <= self.ended.keys(), (self._finished, self.ended)
        for vertex, subtasks in self._vertices.items():
            assert self._left[vertex] == sum(task not in self.ended for task in subtasks), vertex
        assert not any(self._left[vertex] for vertex in self._confirmed_by), self._confirmed_by
        assert 0 <= self.final_failures <= self._final_attempts, self.final_failures

    def fingerprint(self) -> tuple[object, ...]:
        return (
            tuple(sorted(self.ended)),
            tuple(sorted(self._finished)),
            tuple(sorted(self._confirmed_by.items())),
            tuple(sorted(self._leaving)),
            self._final_requested,
            self.final_failures,
            self._final_from if self.final_failures else None,
        )
