"""A job manager in miniature around a real coordinator: a clock, timers, storage answers and a logbook.

Answers to the coordinator's instructions wait in ``outstanding`` until they are given. With ``prompt=True`` they are
given after every event, until none is left; with ``inline=True`` while the instructions of the event that asked for
them are still being carried out. The coordinator is validated after every event. The logbook asserts what must never
happen: a notification before the metadata is durable, an answer without a request, a part of a checkpoint that ends
twice.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

from engine.checkpoint.coordinator import (
    Acknowledge,
    ArmPeriodicTimer,
    ArmTimeout,
    CheckpointCoordinator,
    CheckpointEdge,
    CheckpointGraph,
    CoordinatorConfig,
    CoordinatorInstruction,
    Decline,
    DisarmPeriodicTimer,
    DisarmTimeout,
    DiscardAcknowledgedState,
    DiscardCheckpoint,
    DiscardPendingCheckpoint,
    DiscardSharedState,
    FailJob,
    InitializeLocation,
    MessageIgnored,
    NotifyAborted,
    NotifyComplete,
    RequestCompleted,
    RequestFailed,
    SendTrigger,
    TaskId,
    WriteMetadata,
)
from engine.checkpoint.coordinator.coordinator_messages import CoordinatorInstructions
from engine.checkpoint.failure_reasons import CheckpointFailureReason
from engine.elements.events import CheckpointBarrier, CheckpointOptions

IO_ERROR = CheckpointFailureReason.IO_EXCEPTION
FINALIZE_FAILED = CheckpointFailureReason.FINALIZE_CHECKPOINT_FAILURE

START_NS = 1_000_000 * 1_000_000


@dataclass
class Logbook:
    """Every instruction of the coordinator."""

    triggered: dict[TaskId, list[int]] = field(default_factory=lambda: defaultdict(list))
    trigger_kinds: dict[TaskId, list[str]] = field(default_factory=lambda: defaultdict(list))
    barriers: dict[int, CheckpointBarrier] = field(default_factory=dict)
    timestamps: dict[int, int] = field(default_factory=dict)
    attempts: dict[int, int] = field(default_factory=dict)
    completed: dict[TaskId, list[list[int]]] = field(default_factory=lambda: defaultdict(list))
    aborted: dict[TaskId, list[list[int]]] = field(default_factory=lambda: defaultdict(list))
    reasons: dict[int, str] = field(default_factory=dict)
    requests: dict[str, str] = field(default_factory=dict)
    ignored: list[MessageIgnored] = field(default_factory=list)
    failures: list[FailJob] = field(default_factory=list)
    durable: list[int] = field(default_factory=list)
    written: dict[int, WriteMetadata] = field(default_factory=dict)
    retained_states: dict[int, tuple[Acknowledge, ...]] = field(default_factory=dict)
    discarded_states: list[Acknowledge] = field(default_factory=list)
    discarded_shared: list[object] = field(default_factory=list)
    discarded_checkpoints: list[int] = field(default_factory=list)
    discarded_locations: list[int] = field(default_factory=list)


class CoordinatorDriver:
    """Carries out instructions. ``prompt``: storage answers at once and never fails."""

    def __init__(
        self,
        config: CoordinatorConfig,
        graph: CheckpointGraph,
        options: CheckpointOptions | None = None,
        *,
        prompt: bool = True,
        inline: bool = False,
    ) -> None:
        self.coordinator = CheckpointCoordinator(graph, config, options)
        self.coordinator.begin_attempt(1)
        self.log = Logbook()
        self.now_ns = START_NS
        self.outstanding: list[CoordinatorInstruction] = []
        self.metadata_fails = False
        self.last: CoordinatorInstructions = ()
        self._prompt = prompt
        self._inline = inline
        self._periodic_ns: int | None = None
        self._timeouts: dict[int, int] = {}

    # --- events ---------------------------------------------------------------------------------------------------

    def tell(self, instructions: CoordinatorInstructions) -> None:
        """Carry out the instructions of an event, and, if prompt, all that follow from them."""
        self.last = instructions
        self._carry_out(instructions)
        while self._prompt and self.outstanding:
            self.answer(0, fails=self.metadata_fails)

    def advance(self, amount_ns: int) -> None:
        """Let time pass; timers fire in order."""
        end = self.now_ns + amount_ns
        while (due := self._next_timer()) is not None and due[0] <= end:
            at_ns, checkpoint_id = due
            self.now_ns = max(self.now_ns, at_ns)
            if checkpoint_id is None:
                self._periodic_ns = None
                self.tell(self.coordinator.on_timer(self.now_ns))
            else:
                del self._timeouts[checkpoint_id]
                self.tell(self.coordinator.on_timeout(checkpoint_id, self.now_ns))
        self.now_ns = end

    def _next_timer(self) -> tuple[int, int | None] | None:
        timers: list[tuple[int, int | None]] = [(at_ns, id_) for id_, at_ns in self._timeouts.items()]
        if self._periodic_ns is not None:
            timers.append((self._periodic_ns, None))
        return min(timers, key=lambda timer: (timer[0], timer[1] or 0), default=None)

    def answer(self, position: int, *, fails: bool = False, maybe_written: bool = False) -> None:
        """Storage has done, or failed to do, the outstanding work at ``position``."""
        coordinator, log, now_ns = self.coordinator, self.log, self.now_ns
        work = self.outstanding.pop(position)
        match work:
            case InitializeLocation(checkpoint_id):
                if fails and not self._prompt:
                    self._carry_out(coordinator.on_location_failed(checkpoint_id, IO_ERROR, now_ns))
                else:
                    self._carry_out(coordinator.on_location_ready(checkpoint_id, now_ns))
            case WriteMetadata(checkpoint_id):
                if fails:
                    self._carry_out(
                        coordinator.on_metadata_failed(
                            checkpoint_id, FINALIZE_FAILED, now_ns, maybe_written=maybe_written
                        )
                    )
                else:
                    log.durable.append(checkpoint_id)
                    log.retained_states[checkpoint_id] = work.acknowledgements
                    self._carry_out(coordinator.on_metadata_written(checkpoint_id, now_ns))
            case DiscardCheckpoint(checkpoint_id):
                log.discarded_checkpoints.append(checkpoint_id)
                log.discarded_states += log.retained_states.pop(checkpoint_id, ())
                self._carry_out(coordinator.on_discarded(checkpoint_id, now_ns))
            case DiscardPendingCheckpoint(checkpoint_id, acknowledgements):
                log.discarded_locations.append(checkpoint_id)
                log.discarded_states += acknowledgements
                self._carry_out(coordinator.on_discarded(checkpoint_id, now_ns))
            case _:
                raise AssertionError(work)

    # --- instructions ---------------------------------------------------------------------------------------------

    def _carry_out(self, instructions: CoordinatorInstructions) -> None:
        for position, instruction in enumerate(instructions):
            assert not isinstance(instruction, FailJob) or position == len(instructions) - 1
            self._carry_out_one(instruction)
            if self._inline:
                while self.outstanding:
                    self.answer(len(self.outstanding) - 1)
        self.coordinator.validate()
        hash(self.coordinator.fingerprint(self.now_ns))

    def _carry_out_one(self, instruction: CoordinatorInstruction) -> None:
        log = self.log
        match instruction:
            case ArmPeriodicTimer(at_ns):
                self._periodic_ns = at_ns
            case DisarmPeriodicTimer():
                assert self._periodic_ns is not None
                self._periodic_ns = None
            case ArmTimeout(checkpoint_id, at_ns):
                self._timeouts[checkpoint_id] = at_ns
            case DisarmTimeout(checkpoint_id):
                self._timeouts.pop(checkpoint_id, None)
            case InitializeLocation() | DiscardCheckpoint() | DiscardPendingCheckpoint():
                self.outstanding.append(instruction)
            case WriteMetadata(checkpoint_id):
                assert checkpoint_id not in log.written
                assert not any(isinstance(work, WriteMetadata) for work in self.outstanding)
                log.written[checkpoint_id] = instruction
                self.outstanding.append(instruction)
            case SendTrigger(barrier, tasks):
                log.barriers[barrier.checkpoint_id] = barrier
                log.timestamps[barrier.checkpoint_id] = barrier.timestamp_ns
                log.attempts[barrier.checkpoint_id] = self.coordinator.deployment.attempt
                for task in tasks:
                    log.triggered[task].append(barrier.checkpoint_id)
                    log.trigger_kinds[task].append(barrier.options.kind.name)
            case NotifyComplete(checkpoint_id, last_subsumed_id, tasks):
                assert checkpoint_id in log.durable, f"{checkpoint_id} is told before it is durable"
                for task in tasks:
                    log.completed[task].append([checkpoint_id, last_subsumed_id])
            case NotifyAborted(checkpoint_id, latest_completed_id, reason, tasks):
                assert checkpoint_id not in log.reasons, f"{checkpoint_id} is aborted twice"
                assert checkpoint_id not in log.durable, f"{checkpoint_id} is durable and aborted"
                log.reasons[checkpoint_id] = reason.name
                for task in tasks:
                    log.aborted[task].append([checkpoint_id, latest_completed_id])
            case DiscardAcknowledgedState(acknowledgement):
                log.discarded_states.append(acknowledgement)
            case DiscardSharedState(handles):
                log.discarded_shared += handles
            case MessageIgnored():
                log.ignored.append(instruction)
            case RequestCompleted(label):
                log.requests[label] = "completed"
            case RequestFailed(label, reason):
                log.requests[label] = f"failed:{reason.name}"
            case FailJob():
                log.failures.append(instruction)

    def deleted_files(self) -> set[object]:
        """Names of all files deleted so far: private ones, unregistered uploads, and unused shared ones."""
        uploads = [handle for ack in self.log.discarded_states for handle in ack.discardable_shared]
        return {*self.private_files(), *uploads, *self.log.discarded_shared}

    def private_files(self) -> set[str]:
        """Names of all private files deleted so far, for states of the form ``{"private": [...]}``."""
        states: list[Any] = [acknowledgement.state for acknowledgement in self.log.discarded_states]
        return {name for state in states if state for name in state.get("private", ())}


# --- a small job ------------------------------------------------------------------------------------------------------

SOURCE: TaskId = (0, 0)
SINK: TaskId = (1, 0)
GRAPH = CheckpointGraph((1, 1), (CheckpointEdge(0, 1),))
DECLINED = CheckpointFailureReason.CHECKPOINT_DECLINED


def driver_of(*, prompt: bool = True, **settings: Any) -> CoordinatorDriver:
    return CoordinatorDriver(CoordinatorConfig(**settings), GRAPH, prompt=prompt)


def trigger(driver: CoordinatorDriver, label: str | None = None) -> None:
    driver.tell(driver.coordinator.trigger_manual(label, driver.now_ns))


def ack(driver: CoordinatorDriver, checkpoint_id: int, *tasks: TaskId, state: object = None, attempt: int = 1) -> None:
    for task in tasks or (SOURCE, SINK):
        message = Acknowledge(checkpoint_id, attempt, task, state)
        driver.tell(driver.coordinator.on_acknowledge(message, driver.now_ns))


def decline(driver: CoordinatorDriver, checkpoint_id: int, attempt: int = 1) -> None:
    message = Decline(checkpoint_id, attempt, SINK, DECLINED, "disk full")
    driver.tell(driver.coordinator.on_decline(message, driver.now_ns))
