"""Record acking in a run: the ackers, the messages between them and the tasks, and the committed offsets.

Theory of operation.

* Every task tells the acker of a root how it has changed the root's tree, over a network as slow as that between tasks.
  The acker tells the source. :mod:`engine.protocols.acking` holds the rules; the classes here only carry messages.
* Any of these messages may get lost, be late or come twice, and no task is told: ``acker_init``, ``acker_ack``,
  ``acker_fail``, ``acker_reset`` and ``acker_reply``, each under the name of the task that says or hears it. A lost
  message, or an ACK that comes twice, keeps a root from ever being complete; the root times out.
* A task that dies is deployed anew alone, with empty state. The records on its channels are lost; the sources send them
  again after their timeout. Tasks that live keep their state, and see the records that are sent again a second time.
* Sources commit, per split, the position before the lowest record that is not acknowledged: at most once in each
  checkpoint interval, and when all has been read and acknowledged. A restarted source, or a resumed run, goes on from
  there. One file holds the positions of a job; it is replaced as a whole.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Collection, Mapping
from typing import Any

from engine.checkpoint.coordinator import TaskId
from engine.elements.errors import ConfigurationError, StorageError
from engine.elements.operator import Operator
from engine.graph.plan import ExecutionPlan
from engine.observe.trace_events import AckingMessage, Instrument
from engine.protocols.acking.acker import acker_for
from engine.protocols.acking.anchoring import KIND_NAMES, AckerMessage, Reply
from engine.protocols.acking.settings import UnacknowledgedError
from engine.protocols.acking.statistics import AckingStatistics
from engine.runtime.acking.acked_channel import AckedChannel
from engine.runtime.acking.acker_task import ACKER, AckerTask
from engine.runtime.acking.bolt import Bolt
from engine.runtime.acking.spout import Spout
from engine.runtime.config import RunConfig
from engine.runtime.kernel import DELIVERED, Addressee, Kernel, RunHook
from engine.runtime.tasks import Task, TaskEnvironment, TaskPlace, TaskTracking, TrackedSource, replaced_task
from state_backends.base import StateBackendError, anything, check_shape, flag, map_of, row, text
from state_backends.codec import default_codec, seal, unseal
from state_backends.files import write_atomically
from state_backends.snapshots import CheckpointStorage

OFFSETS_FILE_NAME = "offsets"
_MAGIC, _VERSION = b"WEIROFFS", 1
_OFFSETS = map_of(text, map_of(text, row(anything, flag)))

SplitPosition = tuple[Any, bool]
"""Where reading goes on, and whether all records of the split were read."""


class AckingRun:
    """The part that all attempts of one run share. Implements :class:`engine.runtime.tasks.tracking.RunTracking`."""

    name = "acking"
    channel_class = AckedChannel

    def __init__(
        self,
        plan: ExecutionPlan,
        config: RunConfig,
        *,
        kernel: Kernel,
        storage: CheckpointStorage,
        instrument: Instrument | None,
        hook: RunHook | None = None,
    ) -> None:
        self.settings = settings = config.acking
        self.kernel = kernel
        self.instrument = instrument
        self.hook = hook
        self.note: Callable[[str], None]
        self._tasks: Callable[[str], Addressee | None]
        self.statistics = AckingStatistics()
        self.seed = config.seed
        interval = config.checkpoint_interval
        self.commit_interval_ns = None if interval is None else interval.time_ns
        self.commit_interval_records = None if interval is None else interval.records
        workers = max(vertex.parallelism for vertex in plan.vertices)
        count = workers if settings.ackers is None else settings.ackers
        self.ackers = tuple(
            AckerTask(self, index, config.cost.latency_ns((f"{ACKER}[{index}]", ACKER))) for index in range(count)
        )
        self._storage = storage
        self._committed: dict[str, dict[str, SplitPosition]] = {}
        self._is_durable = True
        """Whether the positions committed last are in the file."""
        self._started_ns = kernel.now_ns

    def attach(self, note: Callable[[str], None], tasks: Callable[[str], Addressee | None]) -> None:
        """Get to know the job: ``note`` keeps notes, ``tasks`` finds the task of a name, ``None`` while it is dead."""
        self.note, self._tasks = note, tasks

    # -- parts of tasks -------------------------------------------------------------------------------------------

    def for_task(self, place: TaskPlace) -> Bolt:
        return Bolt(self, place)

    def for_source(self, task: TrackedSource, place: TaskPlace, tracking: TaskTracking) -> Spout:
        assert isinstance(tracking, Bolt), place.name
        return Spout(task, place, tracking)

    def replace_tasks(
        self, plan: ExecutionPlan, environment: TaskEnvironment, ids: Collection[TaskId], tasks: Mapping[TaskId, Task]
    ) -> dict[TaskId, Task]:
        replaced: dict[TaskId, Task] = {}
        for task_id in ids:
            dead = tasks[task_id]
            outputs = list(dead.checkpointing.output_channels())
            task = replaced[task_id] = replaced_task(plan, environment, dead, outputs)
            for channel in task.inputs:
                assert isinstance(channel, AckedChannel), channel.name
                self.statistics.lost += channel.receiver_replaced()
        return replaced

    @property
    def has_ackers(self) -> bool:
        """Whether anything is tracked at all."""
        return bool(self.ackers)

    # -- messages -------------------------------------------------------------------------------------------------

    def send(self, sender: str, latency_ns: int, message: AckerMessage) -> None:
        """A task, or a source, tells an acker about a root."""
        acker = self.ackers[acker_for(message.root, len(self.ackers))]
        kind = KIND_NAMES[type(message)]
        self._count(kind, sender, acker.name, message.root)
        now_ns = self.kernel.now_ns
        for delay_ns in DELIVERED if self.hook is None else self.hook.delays_ns(f"acker_{kind}", sender):
            self.kernel.schedule(now_ns + latency_ns + delay_ns, "receive", acker, message)

    def answer(self, acker: str, latency_ns: int, reply: Reply) -> None:
        """An acker tells a source what has become of a root. A source that is dead by then does not hear of it."""
        self._count("reply", acker, reply.task, reply.root)
        task = self._tasks(reply.task)
        if task is not None:
            for delay_ns in DELIVERED if self.hook is None else self.hook.delays_ns("acker_reply", task.name):
                at_ns = self.kernel.now_ns + latency_ns + delay_ns
                self.kernel.schedule(at_ns, "receive_mail", task, ("acker_reply", (reply,)))

    def _count(self, kind: str, sender: str, receiver: str, root: int) -> None:
        self.statistics.control[kind] += 1
        if self.instrument is not None:
            self.instrument(AckingMessage(self.kernel.now_ns, kind, sender, receiver, root))

    def next_tick_ns(self) -> int | None:
        """The next whole multiple of the timeout since the start; ``None`` when nothing times out."""
        timeout_ns = self.settings.timeout_ns
        if timeout_ns is None:
            return None
        return self._started_ns + ((self.kernel.now_ns - self._started_ns) // timeout_ns + 1) * timeout_ns

    # -- offsets --------------------------------------------------------------------------------------------------

    @property
    def _path(self) -> str:
        return posixpath.join(self._storage.job_dir, OFFSETS_FILE_NAME)

    def begin(self, restore: bool) -> None:
        """The run begins; ``restore``: where the last one has left off.

        Raises :class:`StorageError` when that cannot be read.
        """
        self._started_ns = self.kernel.now_ns
        if not restore or not self._storage.file_system.exists(self._path):
            return
        try:
            with self._storage.file_system.open_read(self._path) as file:
                stored = default_codec().decode(unseal(file, self._path, _MAGIC, _VERSION), self._path)
            check_shape(stored, _OFFSETS, self._path, "offsets")
        except (StateBackendError, OSError) as error:
            raise StorageError(
                f"the committed offsets cannot be read: {error}\n"
                "  without them the job would begin again; start it anew in another storage directory"
            ) from error
        self._committed = {
            uid: {split: (position, finished) for split, (position, finished) in splits.items()}
            for uid, splits in stored.items()
        }

    def committed(self, uid: str) -> Mapping[str, SplitPosition]:
        """Of all splits of a source: where to go on."""
        return self._committed.get(uid, {})

    def commit(self, uid: str, positions: Mapping[str, SplitPosition]) -> None:
        """Remember positions, durably if storage allows it."""
        splits = self._committed.setdefault(uid, {})
        if self._is_durable and all(splits.get(split) == position for split, position in positions.items()):
            return
        splits.update(positions)
        plain = {name: {split: list(one) for split, one in known.items()} for name, known in self._committed.items()}
        try:
            self._storage.file_system.make_dirs(self._storage.job_dir)
            data = seal(_MAGIC, _VERSION, default_codec().encode(plain))
            write_atomically(self._storage.file_system, self._path, data)
            self.statistics.commits += 1
            self._is_durable = True
        except OSError as error:
            # Positions not durable cost a second reading only if the process dies. The next commit tries again.
            self._is_durable = False
            self.note(f"offsets of {uid} could not be written: {error}")

    # -- deaths ---------------------------------------------------------------------------------------------------

    def named(self, target: str) -> tuple[AckerTask, ...]:
        """The ackers that go by a name, ``acker[1]`` or all of them as ``acker``, or that a worker holds."""
        return tuple(acker for acker in self.ackers if target in (*acker.names, acker.worker))

    def unacknowledged(self) -> UnacknowledgedError:
        """The error of a job in which nothing is left to happen while records still wait for acknowledgement."""
        return UnacknowledgedError(
            "records were lost with a task that died, and nothing will send them again: timeouts are off"
            " (acking: timeout_ns is None)\n  set a timeout, longer than a record is ever under way"
        )

    def fingerprint(self) -> object:
        return (
            tuple(acker.fingerprint() for acker in self.ackers),
            tuple((uid, repr(sorted(splits.items()))) for uid, splits in sorted(self._committed.items())),
        )


def check_acking(plan: ExecutionPlan, config: RunConfig) -> None:
    """Raise :class:`ConfigurationError` for parts and settings of a job that mode ``acking`` does not allow."""
    if not config.protocol.tracks_records:
        return
    if any(edge.is_feedback for edge in plan.edges):
        raise ConfigurationError(
            f"job {plan.job_name!r} has an iteration, and mode {config.mode} does not track records that come back;"
            " use mode aligned"
        )
    for vertex in plan.vertices:
        for one in vertex.operators:
            if one.create_coordinator is not None:
                raise ConfigurationError(
                    f"operator {one.name!r} has a coordinator, which keeps what it has handed out in checkpoints, and"
                    f" mode {config.mode} takes none: a task that came back would never hear of its part again\n"
                    "  use a source that knows its splits from the start, or mode at-least-once"
                )
            # Not the last operator alone: a committer may stand before the operator that reports the commit.
            is_source = vertex.is_source and one.position == 0
            if not is_source and holds_rows_back(one.factory()):
                raise ConfigurationError(
                    f"sink {one.name!r} holds rows back until a checkpoint completes, and mode {config.mode} takes"
                    " none: rows that were acknowledged would be lost with their task\n"
                    "  use a sink that writes at once (delivery='at-least-once', transactional=False), or mode"
                    " at-least-once"
                )


def holds_rows_back(operator: Operator) -> bool:
    """Whether rows that reach a sink become visible only with a later checkpoint."""
    commits = type(operator).notify_checkpoint_complete is not Operator.notify_checkpoint_complete
    return commits and not getattr(operator, "can_publish_at_once", False)
