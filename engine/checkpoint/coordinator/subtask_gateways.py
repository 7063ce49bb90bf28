"""Operator coordinators in a checkpoint: their snapshots, and their events to subtasks around the barrier.

A coordinator (Flink: ``OperatorCoordinator``, such as an enumerator of splits) lives beside the job manager and sends
events to the subtasks of its operator. A checkpoint must cut that conversation too. Events sent before the
coordinator's own snapshot must reach a subtask before the barrier does; events sent afterwards must not.

Rules (Flink: ``OperatorCoordinatorHolder``, ``SubtaskGatewayImpl``, ``PendingCheckpoint``)
-----------------------------------------------------------------------------------------
* Coordinators are snapshotted once the location exists and before any task is triggered; then the master hooks are
  called; then the tasks are triggered. A checkpoint is complete when coordinators, hooks and tasks have all delivered.
* With the coordinator's state its gateways close: later events are kept back, since they belong to the next epoch. A
  gateway opens again when its subtask reports that it has processed the barrier, or when the checkpoint is aborted.
* With several checkpoints under way an event waits for all of them that were closed when it was sent; opening one
  hands its kept events to the one before it. The order of the events never changes.
* A checkpoint that was aborted before the coordinator's state was there closes no gateway.
* A task failure drops the kept events: the coordinator is told which subtask was reset, and to which checkpoint.
"""

from __future__ import annotations

from typing import Generic, TypeVar

Event = TypeVar("Event")

_NO_CHECKPOINT = -1


class SubtaskGateway(Generic[Event]):
    """Passes a coordinator's events to one subtask; see the rules at the top of the module."""

    def __init__(self) -> None:
        # By checkpoint, ascending: events sent while this was the newest closed one.
        self._kept: dict[int, list[Event]] = {}
        self._marked: dict[int, None] = {}
        self._latest_marked = _NO_CHECKPOINT

    @property
    def is_closed(self) -> bool:
        """Whether events are kept back."""
        return bool(self._kept)

    def mark(self, checkpoint_id: int) -> None:
        """The coordinator has been asked for its state. An id not above the newest one was decided already."""
        if checkpoint_id > self._latest_marked:
            self._marked[checkpoint_id] = None
            self._latest_marked = checkpoint_id

    def close(self, checkpoint_id: int) -> bool:
        """The coordinator's state has been taken; ``False`` when the checkpoint is over already."""
        if checkpoint_id not in self._marked:
            return False
        assert checkpoint_id >= max(self._kept, default=checkpoint_id), (checkpoint_id, tuple(self._kept))
        self._kept.setdefault(checkpoint_id, [])
        return True

    def send(self, event: Event) -> tuple[Event, ...]:
        """The coordinator sends; returns the events to deliver now."""
        if not self._kept:
            return (event,)
        self._kept[max(self._kept)].append(event)
        return ()

    def open(self, checkpoint_id: int) -> tuple[Event, ...]:
        """The subtask has processed the barrier, or the checkpoint is aborted; returns the events to deliver now.
        Does nothing when it was opened for that checkpoint before."""
        assert checkpoint_id <= self._latest_marked, f"opened for {checkpoint_id}, which never began"
        if checkpoint_id not in self._marked:
            return ()
        del self._marked[checkpoint_id]
        kept = self._kept.pop(checkpoint_id, None)
        older = [one for one in self._kept if one < checkpoint_id]
        if kept and older:
            self._kept[max(older)] += kept
            return ()
        return tuple(kept or ())

    def drop(self) -> tuple[Event, ...]:
        """The task failed; returns the events that are lost with it."""
        lost = tuple(event for kept in self._kept.values() for event in kept)
        self._kept.clear()
        self._marked.clear()
        return lost

    def validate(self) -> None:
        assert list(self._kept) == sorted(self._kept), tuple(self._kept)
        assert all(one in self._marked for one in self._kept), (tuple(self._kept), tuple(self._marked))
        assert all(one <= self._latest_marked for one in self._marked), tuple(self._marked)

    def fingerprint(self) -> tuple[object, ...]:
        kept = tuple((checkpoint_id, tuple(events)) for checkpoint_id, events in self._kept.items())
        return (kept, tuple(self._marked), self._latest_marked)


class CoordinatorGateways(Generic[Event]):
    """The gateways of one operator coordinator to all subtasks of its operator."""

    def __init__(self, parallelism: int) -> None:
        assert parallelism >= 1, parallelism
        self._gateways: tuple[SubtaskGateway[Event], ...] = tuple(SubtaskGateway() for _ in range(parallelism))

    def begin(self, checkpoint_id: int) -> None:
        """The coordinator is asked for its state."""
        for gateway in self._gateways:
            gateway.mark(checkpoint_id)

    def on_state_taken(self, checkpoint_id: int) -> bool:
        """The coordinator's state is there: close towards every subtask. ``False``: too late, discard the state."""
        refused = 0
        for gateway in self._gateways:
            # A gateway to a subtask that failed in between stays open; the checkpoint fails with it.
            refused += not gateway.close(checkpoint_id)
        return not refused

    def send(self, subtask: int, event: Event) -> tuple[Event, ...]:
        """The coordinator sends to ``subtask``; returns the events to deliver to it now."""
        return self._gateways[subtask].send(event)

    def on_barrier_processed(self, checkpoint_id: int, subtask: int) -> tuple[Event, ...]:
        """``subtask`` has processed the barrier; returns the events to deliver to it now."""
        return self._gateways[subtask].open(checkpoint_id)

    def on_aborted(self, checkpoint_id: int) -> tuple[tuple[int, tuple[Event, ...]], ...]:
        """The checkpoint is over; returns by subtask the events to deliver now."""
        opened = [(subtask, gateway.open(checkpoint_id)) for subtask, gateway in enumerate(self._gateways)]
        return tuple((subtask, events) for subtask, events in opened if events)

    def on_task_failed(self, subtask: int) -> tuple[Event, ...]:
        """The task failed; returns the events that are lost with it."""
        return self._gateways[subtask].drop()

    def validate(self) -> None:
        for gateway in self._gateways:
            gateway.validate()

    def fingerprint(self) -> tuple[object, ...]:
        return tuple(gateway.fingerprint() for gateway in self._gateways)
