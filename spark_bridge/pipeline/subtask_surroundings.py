"""The surroundings of the one task of a :class:`SubtaskBatch`: its job manager, the sender of its inputs and the
receiver of its outputs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from engine.checkpoint.coordinator import Acknowledge, Decline
from engine.runtime.channels import Channel
from engine.runtime.kernel import Kernel
from engine.runtime.tasks import OperatorEvent, TaskLife

if TYPE_CHECKING:
    from spark_bridge.pipeline.subtask_batch import SubtaskReport


class SubtaskSurroundings:
    """``report``: where the outcome of the task goes."""

    name = "batch"

    def __init__(self, kernel: Kernel, report: SubtaskReport) -> None:
        self._kernel = kernel
        self._report = report
        self._is_watching = False

    def run_instant(self) -> None:
        """Run events of this instant only: a timer that is set for later is not due in this batch."""
        if not self._is_watching:
            self._is_watching = True
            self._kernel.schedule(self._kernel.now_ns, "watch", self)
        self._kernel.run()

    def watch(self, _payload: None = None) -> None:
        """Whether anything else is left at this instant (kernel event)."""
        if self._kernel.ready_events:
            self._kernel.schedule(self._kernel.now_ns, "watch", self)
        else:
            self._is_watching = False
            self._kernel.stop()

    def end_span(self, ended: Callable[[], None]) -> None:
        """The virtual time of the batch is over (kernel event)."""
        ended()

    # -- the job manager, as tasks know it ----------------------------------------------------------------------------

    def task_reached_end(self, task: TaskLife) -> None:
        self._report.has_ended = True

    def task_finished(self, task: TaskLife) -> None:
        """It never does: the batch ends first."""

    def task_recovered(self, task: TaskLife) -> None:
        """Records in flight were restored and read."""

    def source_backlog(self, task: TaskLife, is_backlog: bool) -> None:
        """Batches have no interval that could depend on it."""

    def note(self, text: str) -> None:
        self._report.notes.append(text)

    def receive_acknowledge(self, message: Acknowledge) -> None:
        self._report.acknowledgement = message
        self._kernel.stop()

    def receive_decline(self, message: Decline) -> None:
        notes = "".join(f"\n  {note}" for note in self._report.notes)
        self._report.error = RuntimeError(f"checkpoint {message.checkpoint_id}: {message.reason.value}{notes}")
        self._kernel.stop()

    def task_failed(self, report: tuple[int, str, Exception]) -> None:
        self._report.error = report[2]
        self._kernel.stop()

    def operator_event(self, message: OperatorEvent) -> None:
        self._report.events.append(message)

    def barrier_processed(self, message: object) -> None:
        """The events of a batch are delivered at its end anyway."""

    # -- the sender of its inputs -------------------------------------------------------------------------------------

    def output_filled(self) -> None:
        """Inputs are never full."""

    def credit_returned(self) -> None:
        """Inputs are never full."""

    def output_consumed(self) -> None:
        """No sender waits for that."""

    def channel_state_changed(self, checkpoint_id: int) -> None:
        """Aligned barriers store no records in flight."""

    # -- the receiver of its outputs ----------------------------------------------------------------------------------

    def channel_readable(self, channel: Channel) -> None:
        channel.listed = True

    def announces(self, channel: Channel) -> bool:
        return False
