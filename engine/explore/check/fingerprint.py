"""Fingerprints that tell states of a case apart: exactly those parts that decide its future and its verdict.

Included: events still to come, tasks, channels, gates, operators, declared state, snapshots under way, the coordinator
and the rest of the job manager, files, committed output, faults that are still allowed.

Not included:

* counters and names: sequence numbers of events, numbers of elements and slices, events executed, visits of points,
  statistics, notes;
* the order of ready events of *different* targets: each may be chosen next. The events of one target keep their order,
  as in the kernel. The exception: adjacent acknowledgements of one checkpoint in the job manager's mailbox are sorted,
  because their order does not change the coordinator's final state;
* events for dead tasks: no task takes them.

Telling two equivalent states apart costs only time. Treating two different states as one would hide an ending, so tests
compare the endings of a search that uses fingerprints with those of one that does not.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b
from typing import Any

from engine.checkpoint.barriers import barrier_fingerprint
from engine.checkpoint.coordinator import Acknowledge
from engine.elements.batch import Batch
from engine.elements.events import CheckpointBarrier
from engine.explore.run import World
from engine.runtime.execution import Execution
from engine.runtime.job import JobManager
from engine.runtime.kernel import ScheduledEvent
from engine.runtime.tasks import Task
from state_backends.files import TEMPORARY_SUFFIX, MemoryFileSystem

_DEAD = ("failed", "canceled")


def digest_of(*parts: object) -> bytes:
    """16 bytes that stand for plain values."""
    return blake2b(repr(parts).encode(), digest_size=16).digest()


def execution_parts(execution: Execution) -> tuple[object, ...]:
    """Of one process: its pending events and the state of its parts. Declared state is not included."""
    return (pending_parts(execution), execution.manager.fingerprint(), _key_types(execution))


def undisturbed_parts(execution: Execution) -> tuple[object, ...]:
    """The same when nothing fails any more. Then attempt numbers, earlier failures and the checkpoints to restart from
    make no difference."""
    manager = execution.manager
    return (
        pending_parts(execution),
        manager.job.state,
        manager.end.fingerprint(),
        manager.savepoints.fingerprint(),
        manager.coordinator.undisturbed_fingerprint(manager.kernel.now_ns),
        manager.coordinators.fingerprint(),
        [task.fingerprint() for task in manager.tasks.values()],
        _key_types(execution),
    )


def _key_types(execution: Execution) -> object:
    """The key types that the senders of each vertex have agreed on: a later key of another type is an error."""
    manager = execution.manager
    environments = {id(task.place.environment): task.place.environment for task in manager.tasks.values()}
    vertices = range(len(manager.plan.vertices))
    return [[one.key_type_agreement(vertex).key_type for vertex in vertices] for one in environments.values()]


def world_parts(world: World) -> tuple[object, ...]:
    """Of the parts that outlive processes: files and outputs."""
    return (
        _file_system(world.checkpoints),
        _file_system(world.files),
        tuple((uid, _sink(sink)) for uid, sink in sorted(world.sinks.items())),
    )


class WorldDigest:
    """Of the world that the next process would find, taken anew after each change. Files under temporary names do not
    count: the next process deletes them first."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._known: tuple[object, ...] = ()
        self._digest = b""

    def __call__(self) -> bytes:
        checkpoints, files, sinks = world_parts(self._world)
        # The file system returns the very same object while its files are unchanged.
        known = self._known
        if not known or checkpoints is not known[0] or files is not known[1] or sinks != known[2]:
            self._known = (checkpoints, files, sinks)
            self._digest = digest_of(_without_temporary(checkpoints), _without_temporary(files), sinks)
        return self._digest


def _without_temporary(tree: Any) -> object:
    return tuple(
        (name, _without_temporary(content) if isinstance(content, tuple) else content)
        for name, content in tree
        if not name.endswith(TEMPORARY_SUFFIX)
    )


def output_parts(world: World) -> tuple[object, ...]:
    """Of the parts that outlive processes: only rows that readers see, and the data of sinks and sources."""
    return world_parts(world)[1:]


def _file_system(files: object) -> object:
    assert isinstance(files, MemoryFileSystem), "a world to be searched is in memory"
    return files.fingerprint()


def _sink(sink: Any) -> object:
    fingerprint = getattr(sink, "fingerprint", None)
    return sorted(sink.committed_rows()) if fingerprint is None else fingerprint()


def declared_state(task: Task) -> object:
    return tuple(
        (
            None if context.keyed is None else context.keyed.fingerprint(),
            None if context.operator is None else context.operator.fingerprint(),
        )
        for context in task.chain.contexts
    )


def task_of(target: Any) -> Task | None:
    """The task that is the target of events, or that the target belongs to."""
    task = target if isinstance(target, Task) else getattr(target, "task", None)
    return task if isinstance(task, Task) else None


def is_void(event: ScheduledEvent) -> bool:
    """Whether the event is for a dead task."""
    task = task_of(event.target)
    return task is not None and task.life.state in _DEAD


def pending_parts(execution: Execution, *, control: bool = False) -> list[tuple[str, ...]]:
    """Pending events, by target. ``control``: without the events of tasks."""
    kernel, manager = execution.kernel, execution.manager
    queues: dict[Any, list[tuple[object, ...]]] = {}
    for event in kernel.pending():
        target = event.target
        if is_void(event) or (control and task_of(target) is not None):
            continue
        queue = queues.setdefault(target, [])
        queue.append((event.time_ns - kernel.now_ns, event.operation, _payload(event, manager)))
    return sorted(
        (type(target).__name__, getattr(target, "name", ""), repr(_in_any_order(queue)))
        for target, queue in queues.items()
    )


def _payload(event: ScheduledEvent, manager: JobManager) -> object:
    if event.target is manager and isinstance(event.payload, int):
        # The deployment that it was meant for.
        return manager.job.deployment - event.payload
    if event.operation == "arrive":
        return _plain(event.payload[1])
    return _plain(event.payload)


def _plain(value: Any) -> object:
    if isinstance(value, tuple) and type(value) is tuple:
        return tuple(map(_plain, value))
    if isinstance(value, Acknowledge):
        # The acknowledged snapshot is among the snapshots under way.
        return ("acknowledge", value.checkpoint_id, value.task)
    if isinstance(value, CheckpointBarrier):
        return barrier_fingerprint(value)
    if isinstance(value, Batch):
        return (value.values, value.timestamps)
    if isinstance(value, BaseException):
        return (type(value).__name__, str(value))
    return value


def _in_any_order(queue: list[tuple[object, ...]]) -> Iterable[tuple[object, ...]]:
    """The queue, with adjacent acknowledgements of one checkpoint sorted."""
    result: list[tuple[object, ...]] = []
    run: list[tuple[object, ...]] = []
    for entry in queue:
        if entry[1] == "receive_acknowledge" and (not run or _checkpoint(run[0]) == _checkpoint(entry)):
            run.append(entry)
            continue
        result += sorted(run, key=repr)
        run = []
        if entry[1] == "receive_acknowledge":
            run.append(entry)
        else:
            result.append(entry)
    return result + sorted(run, key=repr)


def _checkpoint(entry: tuple[object, ...]) -> object:
    payload = entry[2]
    assert isinstance(payload, tuple), entry
    return payload[1]


def failure_parts(execution: Execution) -> tuple[object, ...]:
    """The parts that make a difference to a failure of tasks, besides those that outlive the process: whether the job
    runs, which checkpoints are complete, and how far the job manager is with one that it begins or completes. (All
    checkpoints under way are aborted, whichever tasks have acknowledged them.)"""
    manager, coordinator = execution.manager, execution.manager.coordinator
    return (
        manager.job.state,
        coordinator.next_checkpoint_id,
        coordinator.retained.ids,
        coordinator.pending.finalizing_id,
        coordinator.pending.preparing_id is not None,
    )
