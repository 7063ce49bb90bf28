"""The state of a task, and the ways in which it dies: of an error of its own, by order of the job manager, with its
process. A dead task closes its operators and deletes its unfinished files; a dead process does neither.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from engine.observe.trace_events import TaskState
from engine.runtime.channels import Channel
from engine.runtime.tasks.environment import TaskPlace
from engine.runtime.tasks.operator_chain import OperatorChain
from engine.runtime.tasks.task_checkpoint import TaskCheckpointing
from engine.runtime.tasks.tracking import TaskTracking

CREATED, RUNNING, FINISHED, FAILED, CANCELED = "created", "running", "finished", "failed", "canceled"


class TaskLife:
    """The life of the task at a place. ``tracking`` is absent when records are not tracked."""

    def __init__(
        self,
        place: TaskPlace,
        inputs: Iterable[Channel],
        chain: OperatorChain,
        checkpointing: TaskCheckpointing,
        tracking: TaskTracking | None,
    ) -> None:
        self.task_id = place.task_id
        self.attempt = place.attempt
        self.state = CREATED
        self.disowned = False
        """Whether the job manager has declared the task dead: its further actions are ignored."""
        self.ran_ns = 0
        """How long it was running, once it does so no more."""
        self.runs_since_ns = 0
        self._place = place
        self._inputs = inputs
        self._chain = chain
        self._checkpointing = checkpointing
        self._tracking = tracking

    @property
    def is_running(self) -> bool:
        """Whether the task takes part: it has begun, and has not ended in any way."""
        return self.state == RUNNING

    @property
    def is_alive(self) -> bool:
        """Whether the task has not ended in any way."""
        return self.state in (CREATED, RUNNING)

    def enter(self, state: str, cause: Exception | None = None) -> None:
        """The task is in another state from now on."""
        now = self._place.kernel.now_ns
        if state == RUNNING:
            self.runs_since_ns = now
        elif self.state == RUNNING:
            self.ran_ns = now - self.runs_since_ns
        self.state = state
        self.trace_state(state, cause)
        if self._tracking is not None and state in (FAILED, CANCELED):
            self._tracking.task_died(self._inputs, self._checkpointing.output_channels())

    def trace_state(self, state: str, cause: Exception | None = None) -> None:
        """Tell the instrument in which state the task is."""
        place = self._place
        if place.environment.instrument is not None:
            text = None if cause is None else f"{type(cause).__name__}: {cause}"
            place.environment.instrument(TaskState(place.kernel.now_ns, place.attempt, place.name, state, text))

    def survives(self, step: Callable[[], None]) -> bool:
        """Whether a step goes well; an error in it fails the task."""
        try:
            step()
        except AssertionError:
            raise
        except Exception as error:
            self.fail(error)
            return False
        return True

    def kill(self, cause: Exception) -> None:
        """Die at this very record (fault injection; mail)."""
        self.fail(cause, noticed_after_ns=self._place.environment.cost.detection_ns)

    def fail(self, error: Exception, *, with_process: bool = False, noticed_after_ns: int = 0) -> None:
        """Stop at once and tell the job manager. ``with_process``: nothing is closed or deleted."""
        if not self.is_alive:
            return
        self.enter(FAILED, error)
        if with_process:
            self.perish()
        else:
            self._abandon()
        place = self._place
        report = (place.attempt, place.name, error)
        place.kernel.schedule(place.kernel.now_ns + noticed_after_ns, "task_failed", place.environment.master, report)

    def cancel(self) -> None:
        """Stop at once because the attempt is over."""
        hook = self._place.hook
        if (hook is None or hook.may("cancel")) and self.is_alive:
            self.enter(CANCELED)
            self._abandon()

    def _abandon(self) -> None:
        if self._place.hook is None:
            self._clean_up()
        else:
            with self._place.hook.alone(is_dead=True):
                self._clean_up()

    def _clean_up(self) -> None:
        self._checkpointing.abandon()
        self._chain.close_anyhow()
        self._chain.dispose()

    def perish(self) -> None:
        """The process of the task is gone: all its work stops, and nothing is cleaned up."""
        self._checkpointing.perish()
        self._chain.perish()
