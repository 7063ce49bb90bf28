"""The restore planner: which state of a completed checkpoint goes to which subtask of a job (pure).

Rules (Flink: ``StateAssignmentOperation``)
-------------------------------------------
* Operators are matched by the uid that the user gave, or else by the generated one: state from before an operator got
  its uid is found. State that no operator of the job claims is an error, unless the user allows it to be dropped;
  operators without state in the checkpoint start empty. An operator that wrote no state needs none back.
* The max parallelism of the state takes precedence when the job's was derived from the parallelism. An explicit
  different one is an error (keys would belong to other groups), and so is a parallelism above it. Records in flight
  count as state: they, too, were sent by key group.
* Same parallelism: every subtask gets back exactly its own, union lists excepted. Otherwise see ``redistribution``.

Rules for finished tasks (Flink: ``VertexFinishedStateChecker``); asked only where the graph may have changed
-----------------------------------------------------------------------------------------------------------
* All operators of a vertex agree on whether it had finished, partly or fully.
* Every predecessor of a fully finished vertex is fully finished: otherwise its records would have no receiver.
* A predecessor of a partly finished vertex is fully finished, or at least partly over a pointwise edge.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from engine.checkpoint.coordinator import CheckpointEdge
from engine.checkpoint.restore.redistribution import OperatorStatePart, keyed_state_parts, redistribute_operator_state
from engine.elements.errors import JobChangedError
from state_backends.snapshots import KeyedStateHandle, OperatorSnapshot, OperatorStateHandle, SubtaskSnapshot


class UnmatchedStateError(JobChangedError):
    """The checkpoint holds state of operators that the job does not have. ``uids``: those of these operators."""

    def __init__(self, unmatched: Sequence[OperatorSnapshot], fresh: Sequence[RestoreTarget]) -> None:
        self.uids = tuple(operator.uid for operator in unmatched)
        lines = [f"  {_describe(operator)}" for operator in unmatched]
        if fresh:
            lines.append("operators of the job that have no state in the checkpoint:")
            lines += [f"  uid {target.uid!r} ({target.name})" for target in fresh]
        listing = "\n".join(lines)
        super().__init__(
            f"the checkpoint holds state that no operator of the job claims:\n{listing}\n"
            "  if an operator was renamed, give it its old uid; to drop this state on purpose, allow non-restored state"
        )


class MaxParallelismMismatchError(JobChangedError):
    """The job's max parallelism or parallelism does not fit that of the state."""


@dataclass(frozen=True, slots=True)
class RestoreTarget:
    """An operator of the job to be started.

    ``is_max_parallelism_derived``: it was computed from the parallelism, so that the state's may replace it.
    ``generated_uid``: the one it would have had without a given one, ``None`` when that is its uid anyway.
    """

    uid: str
    name: str
    parallelism: int
    max_parallelism: int
    is_max_parallelism_derived: bool = False
    generated_uid: str | None = None


@dataclass(frozen=True, slots=True)
class SubtaskState:
    """The state from which one subtask of one operator is restored."""

    keyed: tuple[KeyedStateHandle, ...] = ()
    operator: tuple[OperatorStateHandle, ...] = ()


@dataclass(frozen=True, slots=True)
class RestorePlan:
    """Assigns state to subtasks.

    ``subtasks``         ``(uid, subtask)`` -> its state, for every subtask of every operator that had state;
    ``max_parallelism``  uid -> the one to run with;
    ``coordinators``     uid -> the encoded state of its coordinator, where the checkpoint has one;
    ``dropped``          uids whose state no operator claims (only when that is allowed);
    ``fresh``            uids of the job that start empty.
    """

    subtasks: Mapping[tuple[str, int], SubtaskState] = field(default_factory=dict)
    max_parallelism: Mapping[str, int] = field(default_factory=dict)
    dropped: tuple[str, ...] = ()
    fresh: tuple[str, ...] = ()
    coordinators: Mapping[str, bytes] = field(default_factory=dict)

    def for_subtask(self, uid: str, subtask: int) -> SubtaskState | None:
        """The state of this subtask, ``None`` for an operator that starts empty."""
        return self.subtasks.get((uid, subtask))


def plan_restore(
    operators: Sequence[OperatorSnapshot], targets: Sequence[RestoreTarget], *, allow_non_restored_state: bool = False
) -> RestorePlan:
    """Assign the state of a checkpoint to the operators of a job.

    :raises UnmatchedStateError: when state would be lost and that is not allowed
    :raises MaxParallelismMismatchError: when the key groups do not fit
    """
    written = [operator for operator in operators if _has_state(operator) or operator.coordinator_state is not None]
    by_uid = _match(written, targets)
    claimed = {target.uid for target in by_uid.values()}
    unmatched = [operator for operator in written if operator.uid not in by_uid]
    fresh = [target for target in targets if target.uid not in claimed]
    if unmatched and not allow_non_restored_state:
        raise UnmatchedStateError(unmatched, fresh)
    subtasks: dict[tuple[str, int], SubtaskState] = {}
    max_parallelism = {target.uid: target.max_parallelism for target in targets}
    coordinators: dict[str, bytes] = {}
    for operator in written:
        target = by_uid.get(operator.uid)
        if target is None:
            continue
        if operator.coordinator_state is not None:
            coordinators[target.uid] = operator.coordinator_state
        if not _has_state(operator):
            continue
        max_parallelism[target.uid] = resolve_max_parallelism_of_state(operator.max_parallelism, target)
        for subtask, state in enumerate(_assign(operator, target.parallelism)):
            subtasks[target.uid, subtask] = state
    return RestorePlan(
        subtasks,
        max_parallelism,
        tuple(operator.uid for operator in unmatched),
        tuple(target.uid for target in fresh),
        coordinators,
    )


def _match(written_operators: Sequence[OperatorSnapshot], targets: Sequence[RestoreTarget]) -> dict[str, RestoreTarget]:
    """For each uid in the checkpoint the operator of the job that claims its state."""
    written = {operator.uid for operator in written_operators}
    by_uid = {target.uid: target for target in targets}
    assert len(by_uid) == len(targets), "two operators of the job have one uid"
    matched = {uid: target for uid, target in by_uid.items() if uid in written}
    for target in targets:
        generated = target.generated_uid
        if generated is not None and generated in written and target.uid not in written:
            # The operator that has a uid now takes precedence over one that had it before.
            matched.setdefault(generated, target)
    return matched


def resolve_max_parallelism_of_state(state_max_parallelism: int, target: RestoreTarget) -> int:
    """The max parallelism to run with; raises :class:`MaxParallelismMismatchError`."""
    who = f"operator {target.name!r} (uid {target.uid!r})"
    if target.parallelism > state_max_parallelism:
        raise MaxParallelismMismatchError(
            f"{who} has parallelism {target.parallelism}, but its state was written with max parallelism "
            f"{state_max_parallelism}, which can never change\n  lower the parallelism to at most "
            f"{state_max_parallelism}"
        )
    if target.max_parallelism != state_max_parallelism and not target.is_max_parallelism_derived:
        raise MaxParallelismMismatchError(
            f"{who} has max parallelism {target.max_parallelism}, but its state was written with "
            f"{state_max_parallelism}: its keys belong to other key groups\n  set max_parallelism to "
            f"{state_max_parallelism}, or leave it out"
        )
    return state_max_parallelism


def _assign(operator: OperatorSnapshot, parallelism: int) -> list[SubtaskState]:
    old = [operator.subtasks.get(subtask, SubtaskSnapshot()) for subtask in range(operator.parallelism)]
    keyed = _assign_keyed([snapshot.keyed for snapshot in old], operator.max_parallelism, parallelism)
    listed = _assign_operator_state([snapshot.operator for snapshot in old], parallelism)
    return [SubtaskState(*states) for states in zip(keyed, listed, strict=True)]


def _assign_keyed(
    old: Sequence[KeyedStateHandle | None], max_parallelism: int, parallelism: int
) -> list[tuple[KeyedStateHandle, ...]]:
    if len(old) == parallelism:
        return [() if handle is None else (handle,) for handle in old]
    ranges = [None if handle is None else handle.key_group_range for handle in old]
    assigned = []
    for parts in keyed_state_parts(max_parallelism, ranges, parallelism):
        handles = []
        for part in parts:
            handle = old[part.old_subtask]
            assert handle is not None, part
            cut = handle.intersect(part.key_groups)
            assert cut is not None, part
            handles.append(cut)
        assigned.append(tuple(handles))
    return assigned


def _assign_operator_state(
    old: Sequence[OperatorStateHandle | None], parallelism: int
) -> list[tuple[OperatorStateHandle, ...]]:
    # The handle itself stands for its stream: two handles may hold equal bytes and are still two.
    parts = [() if handle is None else (OperatorStatePart(handle, handle.states),) for handle in old]
    return [tuple(_cut(part) for part in share) for share in redistribute_operator_state(parts, parallelism)]


def _cut(part: OperatorStatePart[OperatorStateHandle]) -> OperatorStateHandle:
    whole = part.stream
    return whole if part.states == whole.states else whole.with_states(part.states)


def _has_state(operator: OperatorSnapshot) -> bool:
    return any(next(snapshot.streams(), None) is not None for snapshot in operator.subtasks.values())


def _describe(operator: OperatorSnapshot) -> str:
    names: list[str] = []
    keyed = in_flight = 0
    for _, snapshot in sorted(operator.subtasks.items()):
        keyed += snapshot.keyed is not None
        in_flight += snapshot.input_channels is not None or snapshot.output_channels is not None
        if snapshot.operator is not None:
            names += [name for name in snapshot.operator.states if name not in names]
    what = [f"keyed state of {keyed} subtasks"] if keyed else []
    if names:
        what.append(f"operator state {', '.join(map(repr, sorted(names)))}")
    if in_flight:
        what.append(f"records in flight of {in_flight} subtasks")
    if operator.coordinator_state is not None:
        what.append("state of its coordinator")
    return f"uid {operator.uid!r} ({operator.name}, parallelism {operator.parallelism}): {' and '.join(what)}"


# --- finished tasks -----------------------------------------------------------------------------------------------


class FinishedMarkersError(JobChangedError):
    """The job's graph does not fit the tasks that had finished by the checkpoint."""


class RestoreVertex(NamedTuple):
    """A chain of operators of the job to be started."""

    name: str
    uids: tuple[str, ...]


class FinishedStatus(Enum):
    """How much of a vertex had finished."""

    ALL_RUNNING = "running"
    PARTIALLY_FINISHED = "partly finished"
    FULLY_FINISHED = "fully finished"


def check_finished_markers(
    operators: Sequence[OperatorSnapshot], vertices: Sequence[RestoreVertex], edges: Sequence[CheckpointEdge]
) -> tuple[int, ...]:
    """The vertices that start as finished, by index.

    :param operators: those of the checkpoint; a subtask that had finished is marked for every operator of its chain
    :param edges: of the job, between indexes of ``vertices``
    :raises FinishedMarkersError: when the markers contradict the graph
    """
    by_uid = {operator.uid: operator for operator in operators}
    statuses = [_status_of(vertex, by_uid) for vertex in vertices]
    for edge in edges:
        before, after = statuses[edge.source], statuses[edge.target]
        is_fine = before is FinishedStatus.FULLY_FINISHED or after is FinishedStatus.ALL_RUNNING
        if after is before is FinishedStatus.PARTIALLY_FINISHED:
            is_fine = edge.connections is not None
        if not is_fine:
            raise FinishedMarkersError(
                f"vertex {vertices[edge.target].name!r} had {_told(after)} by the checkpoint, but "
                f"{vertices[edge.source].name!r}, which feeds it in this job, had {_told(before)}: its records would "
                "reach nobody\n  restore with the graph that the checkpoint was taken with, or put the new operators "
                "behind those that had finished"
            )
    return tuple(index for index, status in enumerate(statuses) if status is FinishedStatus.FULLY_FINISHED)


def _status_of(vertex: RestoreVertex, by_uid: Mapping[str, OperatorSnapshot]) -> FinishedStatus:
    by_status: dict[FinishedStatus, str] = {}
    for uid in vertex.uids:
        operator = by_uid.get(uid)
        by_status.setdefault(FinishedStatus.ALL_RUNNING if operator is None else finished_status(operator), uid)
    if len(by_status) > 1:
        told = " and ".join(f"{uid!r} had {_told(status)}" for status, uid in by_status.items())
        raise FinishedMarkersError(
            f"vertex {vertex.name!r} cannot be restored: of its operators, {told} by the checkpoint\n"
            "  operators of one chain finish together: do not chain a new operator to one that had finished"
        )
    return next(iter(by_status))


def finished_status(operator: OperatorSnapshot) -> FinishedStatus:
    """How many of an operator's subtasks had finished."""
    finished = sum(snapshot.finished for snapshot in operator.subtasks.values())
    if finished == operator.parallelism:
        return FinishedStatus.FULLY_FINISHED
    return FinishedStatus.PARTIALLY_FINISHED if finished else FinishedStatus.ALL_RUNNING


def _told(status: FinishedStatus) -> str:
    return "not finished" if status is FinishedStatus.ALL_RUNNING else status.value
