"""The operator contract: the methods that the runtime calls, their order, and the services an operator may use.

Life cycle of one operator in one attempt of one subtask (Flink: ``StreamOperator``)::

    setup -> initialize_state -> open -> { process_batch | process_watermark | timers
                                          | prepare_snapshot_pre_barrier -> snapshot_state
                                          | notify_checkpoint_complete | notify_checkpoint_aborted }*
          -> finish -> { snapshot / notify }* -> close

``finish`` comes once, when the last input ended; a checkpoint may follow it, and only after that checkpoint has
completed may an operator rely on its last commit. ``close`` always comes, also after a failure, and must not
publish anything.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from engine.elements.batch import Batch
from engine.elements.errors import ForbiddenCallError, KeyTypeMismatchError, UserFunctionError, WeirError, shorten
from state_backends.base import KeyTypeError

if TYPE_CHECKING:
    from engine.elements.outside_world import OutsideWorld
    from engine.elements.record_tracking import RecordTracking
    from engine.observe.provenance import Lineage
    from state_backends.api import KeyedStateBackend, OperatorStateBackend
    from state_backends.files import FileSystem


class Output(Protocol):
    """Takes the output of an operator."""

    def emit(self, batch: Batch) -> None:
        """Pass ``batch`` on. An empty batch is allowed and is not sent."""

    def emit_watermark(self, timestamp_ms: int) -> None:
        """Promise that no record at or below ``timestamp_ms`` follows."""

    def emit_watermark_status(self, idle: bool) -> None:
        """Say that this stream is idle, or active again."""

    def emit_side(self, tag: str, batch: Batch) -> None:
        """Pass ``batch`` on to the readers of side output ``tag``; dropped when there are none."""


class OperatorMetrics(Protocol):
    """Counters of one operator in one subtask, under Flink's names where it has one."""

    def count(self, name: str, amount: int = 1) -> None:
        """Add ``amount`` to counter ``name``."""


class OperatorContext(Protocol):
    """The facts and services for one operator in one subtask."""

    uid: str
    name: str
    subtask: int
    parallelism: int
    max_parallelism: int
    attempt: int
    incarnation: int
    checkpointing_enabled: bool
    """Whether a checkpoint will follow ``finish``; without one a sink publishes its records when it finishes."""
    publish_at_once: bool
    """Whether a sink must publish a record before it returns: it counts as handled then, and may never come again. A
    sink that commits with checkpoints is refused there, unless its operator says that it ``can_publish_at_once``."""
    starts_from_another_run: bool
    """Whether the restored state is of a snapshot that the job was started from. The run that took it may have
    committed into another output directory."""
    restored_is_committed: bool
    """Whether everything that the restored state lists has been committed, by the process that coordinates the job:
    there is nothing to commit again."""
    metrics: OperatorMetrics
    world: OutsideWorld | None
    """The clock and the chances outside of the job; ``None`` where no time passes, as in batches on Spark."""
    tracking: RecordTracking | None
    """Tracks the records of the task in mode ``acking``; ``None`` in other modes."""

    def processing_time_ms(self) -> int:
        """The virtual clock, in ms. Never the wall clock."""

    def processing_time_ns(self) -> int:
        """The virtual clock, in ns."""

    def file_system(self) -> FileSystem:
        """The file system that sources and sinks of this job use."""

    def resolve_path(self, path: str) -> str:
        """``path`` below the run's output directory when it is relative, else unchanged."""

    def keyed_backend(self) -> KeyedStateBackend:
        """Keyed state of this operator. Only for operators after ``key_by``."""

    def operator_backend(self) -> OperatorStateBackend:
        """Operator (non-keyed) state of this operator."""

    def restored_checkpoint_id(self) -> int | None:
        """Id of the checkpoint this attempt starts from; ``None`` for a fresh start."""

    def register_processing_timer(self, time_ms: int) -> None:
        """Call ``on_processing_time(time_ms)`` once the virtual clock has reached ``time_ms``."""

    def register_processing_timer_ns(self, time_ns: int) -> None:
        """The same in ns: ``on_processing_time_ns(time_ns)``. The runtime cuts batches exactly at timers."""

    def spend(self, virtual_ns: int) -> None:
        """Charge the task with ``virtual_ns`` of virtual time for the work just done (a Spark call, say). Until it is
        over the task does nothing else: mail, priority events and the next record wait.

        An operator that spends time in ``process_batch`` gets one record at a time from then on, unless it says
        ``spends_per_batch``: barriers come between two records, whatever charges the time."""

    def hold_input(self) -> None:
        """Let the task start no further element, as if an output had no credit, until :meth:`release_input`: the
        operator has taken on as much work as it may. Events that overtake, mail and timers still come, and so do
        records of operators before it in the chain. Asking twice is asking once."""

    def release_input(self) -> None:
        """Take that back; does nothing if the input was not held."""

    def send_to_coordinator(self, event: Any) -> None:
        """Send a plain value to the operator's coordinator (:mod:`engine.elements.operator_coordination`). It is
        part of no checkpoint.

        Raises :class:`engine.elements.errors.JobGraphError` when the operator has none, and
        :class:`engine.elements.errors.StateError` when ``event`` is not a plain value.
        """

    def report_loss(self, what: str) -> None:
        """Say that ``what``, which a completed checkpoint covers, can never be committed any more: its records are
        lost. The job goes on, and the verdict on the run is *violated*. Another attempt may report it again."""

    def report_backlog(self, is_backlog: bool) -> None:
        """Say that the operator, a source, has begun or ended to work off a backlog: while any source does, the
        checkpoint interval is ``interval_during_backlog_ns`` (Flink: ``setIsProcessingBacklog``)."""


class Operator:
    """Base of all operators: forwards watermarks, keeps no state. Subclasses override what they need."""

    context: OperatorContext
    output: Output
    spends_per_batch = False
    """Whether ``process_batch`` spends its time per batch (one request, one Spark job), not per record. Barriers and
    mail then wait for the whole of it."""
    one_process: str | None = None
    """Why all its subtasks must run in one process, then the way out, as the rest of a sentence about the operator;
    ``None`` for an operator that may run in any process."""
    writes_alone: Sequence[str] = ()
    """The directories, as the job names them, to which one process at a time writes while the operator is open."""
    summaries_of: Callable[[Sequence[Any]], Sequence[Any]] | None = None
    """For an operator that takes summaries, such as those of committables: finds them among its input. Each stands for
    all records of the emission that it came with. ``None``: a record of its input stands for itself."""
    lineage: Lineage | None = None
    """Is told the key and window of an emission that no record has caused, in a run that keeps a ledger of causes. Then
    such emissions are made one by one."""

    def setup(self, context: OperatorContext, output: Output) -> None:
        """Receive the context and the output. No state can be reached yet."""
        self.context = context
        self.output = output

    def initialize_state(self) -> None:
        """Declare state; restored state is there already."""

    def open(self) -> None:
        """Last step before the first element."""

    def process_batch(self, batch: Batch) -> None:
        """Handle the records of ``batch``, in order."""
        raise TypeError(f"{type(self).__name__} takes no records")

    def process_watermark(self, timestamp_ms: int) -> None:
        """Event time has advanced to ``timestamp_ms`` on all inputs."""
        self.output.emit_watermark(timestamp_ms)

    def process_watermark_status(self, idle: bool) -> None:
        """All inputs have become idle, or one is active again."""
        self.output.emit_watermark_status(idle)

    def on_processing_time_ns(self, time_ns: int) -> None:
        """A timer registered through the context is due."""
        self.on_processing_time(time_ns // 1_000_000)

    def on_processing_time(self, time_ms: int) -> None:
        """The same in ms, for operators that need no finer time."""

    def on_coordinator_event(self, event: Any) -> None:
        """The operator's coordinator has sent ``event``; between two records, never after the end of the input."""
        raise TypeError(f"{type(self).__name__} takes no events of a coordinator")

    def prepare_snapshot_pre_barrier(self, checkpoint_id: int) -> None:
        """Last chance to emit records that belong before the barrier."""

    def snapshot_state(self, checkpoint_id: int) -> None:
        """Bring declared state up to date; it is captured as soon as this returns."""

    def resume_at_end(self, checkpoint_id: int) -> None:
        """The restored checkpoint began after the end of the input of all subtasks: ``finish`` was called before it and
        is not called again. Only batches resume so; a restarted job reads the end of its input once more."""

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        """``checkpoint_id`` is durable. May come late, twice over restarts, or never."""

    def notify_checkpoint_aborted(self, checkpoint_id: int) -> None:
        """``checkpoint_id`` will never be restored from."""
        # An abort changes nothing by itself: the next checkpoint covers the records of this one
        # (mutant "kept twice after an abort").

    def finish(self) -> None:
        """All input has ended: emit the records still held back."""

    def close(self) -> None:
        """Release resources; also called after a failure, at any point of the life cycle."""

    def abandon(self) -> None:
        """The simulated process of the operator is dead: release everything that a dead process does not hold, such as
        open files and connections. Do nothing else; ``close`` is not called."""

    def fingerprint(self) -> object:
        """State besides the declared one that makes two operators behave differently; ``None`` for most."""
        return None

    def user_error(self, what: str, record: Any, cause: BaseException) -> WeirError:
        """The error that says which function of this operator failed on which record."""
        name, attempt = self.context.name, self.context.attempt
        if isinstance(cause, ForbiddenCallError):
            return cause.inside(name, what, record)
        if isinstance(cause, KeyTypeError):
            # An int too wide for the type of the keys shows only where its key group is needed. With one receiver
            # that is in the state, below the user's function, which has not caused it.
            return KeyTypeMismatchError(
                f"operator {name!r} got a key of the wrong type: {cause}\n"
                f"  record  {shorten(record)}\n"
                f"  attempt {attempt}"
            )
        return UserFunctionError(name, what, record, attempt, cause)


def no_records(values: Sequence[Any]) -> Sequence[Any]:
    """The ``summaries_of`` an operator whose input stands for no records, such as names of partitions."""
    return ()


class TwoInputOperator(Operator):
    """An operator with two inputs, which differ by the input a batch came in on (Flink: ``TwoInputStreamOperator``).

    Each input may be a union of streams. ``process_watermark`` and ``process_watermark_status`` concern both together:
    the watermark is the minimum over every channel of either input that is not idle, and the operator is idle when all
    of them are. Batches of the two inputs come in the order in which the task takes them from its channels; there is no
    other order between them. Such an operator is always the head of its chain.
    """

    def process_batch(self, batch: Batch) -> None:
        """The same as :meth:`process_batch_1`: a caller that knows no second input means the first."""
        self.process_batch_1(batch)

    def process_batch_1(self, batch: Batch) -> None:
        """Handle records of the first input, in order."""
        raise TypeError(f"{type(self).__name__} takes no records on its first input")

    def process_batch_2(self, batch: Batch) -> None:
        """Handle records of the second input, in order."""
        raise TypeError(f"{type(self).__name__} takes no records on its second input")


OperatorFactory = Callable[[], Operator]
"""Makes a fresh operator for one subtask and attempt. Its captured variables are read-only."""
