"""Records in flight of a completed checkpoint, given to the channels of a plan.

Rules (Flink: ``TaskStateAssignment``, ``RecoveredInputChannel`` with ``DemultiplexingRecordDeserializer``)
---------------------------------------------------------------------------------------------------------
* A channel is known by the stable name of its edge and the subtasks at its ends. Every new channel reads the pieces
  that ``state_mapping`` gives it, the receiver's before the sender's, so the order per old channel is kept.
* Where several new channels read one piece, each keeps only the records that the current partitioner sends to it: keyed
  records by their key group, others by the user's partitioner.
* Records that were under way without keys cannot go on to a keyed operator: their subtask is not known.
* In-flight data of an edge that the job does not have is an error, unless the user allows state to be dropped. An edge
  that lies inside a chain now counts as one that the job does not have.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from engine.checkpoint.restore import ChannelStateEdge, UnsupportedMappingError, needs_filter, plan_channel_state
from engine.elements.batch import Batch
from engine.elements.errors import JobChangedError, UserFunctionError
from engine.graph.partitioner import CustomPartitioner, HashPartitioner
from engine.graph.plan import EdgePlan, ExecutionPlan
from engine.observe.provenance import INPUT, OUTPUT, Cause, Provenance
from engine.runtime.channels import TracedBatch
from state_backends.base import (
    CorruptStateError,
    KeyType,
    infer_key_type,
    key_group_function,
    operator_index_for_key_group,
)
from state_backends.snapshots import (
    ChannelName,
    ChannelStateHandle,
    CheckpointMetadata,
    RecordColumns,
    StateReader,
    read_channel_state,
)

_Pieces = dict[str, dict[tuple[int, int], list[RecordColumns]]]
"""By edge, then by (sender, receiver)."""


@dataclass(slots=True)
class InFlight:
    """Restored records of one channel: the receiver's and the sender's part."""

    inputs: list[Batch] = field(default_factory=list)
    outputs: list[Batch] = field(default_factory=list)


NOTHING_IN_FLIGHT = InFlight()


@dataclass(slots=True)
class RestoredChannels:
    """``any``: whether the checkpoint holds records in flight; ``channels``: these records, by index of the channel;
    ``key_types``: by receiving vertex, the type of their keys; ``dropped``: edges whose records were dropped."""

    any: bool = False
    channels: dict[int, InFlight] = field(default_factory=dict)
    key_types: dict[int, KeyType] = field(default_factory=dict)
    dropped: tuple[str, ...] = ()


def restore_channels(
    metadata: CheckpointMetadata,
    plan: ExecutionPlan,
    reader: StateReader,
    *,
    allow_non_restored_state: bool,
    provenance: Provenance | None = None,
) -> RestoredChannels:
    """Give every channel of ``plan`` its records in flight, with their causes if ``provenance`` is given.

    Raises :class:`JobChangedError` when the job lacks an edge, or cannot spread its records over other subtasks.
    """
    snapshots = [subtask for operator in metadata.operators for _, subtask in sorted(operator.subtasks.items())]
    inputs = _read(reader, (one.input_channels for one in snapshots))
    outputs = _read(reader, (one.output_channels for one in snapshots))
    result = RestoredChannels(any=bool(inputs or outputs))
    if not result.any:
        return result

    def told(side: str, edge: str) -> Callable[[tuple[int, int]], Sequence[Cause] | None] | None:
        if provenance is None:
            return None
        return lambda pair: provenance.in_flight(metadata.checkpoint_id, side, edge, *pair)

    known = {edge.name for edge in plan.edges}
    lost = sorted({*inputs, *outputs} - known)
    if lost and not allow_non_restored_state:
        raise JobChangedError(
            f"checkpoint {metadata.checkpoint_id} holds records in flight on edges that the job does not have:\n"
            + "".join(f"  {name}\n" for name in lost)
            + "  restore with the operators, their uids and their chaining as they were, from a savepoint (which holds "
            "no records in flight), or allow the records to be dropped with --allow-non-restored-state"
        )
    result.dropped = tuple(f"records in flight on {name}" for name in lost)
    parallelism = {operator.uid: operator.parallelism for operator in metadata.operators}
    index = {(one.edge, one.sender_subtask, one.receiver_subtask): one.index for one in plan.channels}
    for edge in plan.edges:
        moved = _Edge(plan, edge, parallelism)
        for pair, batches in moved.spread(inputs.get(edge.name, {}), told(INPUT, edge.name)):
            result.channels.setdefault(index[edge.index, *pair], InFlight()).inputs += batches
        for pair, batches in moved.spread(outputs.get(edge.name, {}), told(OUTPUT, edge.name)):
            result.channels.setdefault(index[edge.index, *pair], InFlight()).outputs += batches
        if moved.key_type is not None:
            result.key_types.setdefault(edge.target_vertex, moved.key_type)
    return result


def check_channels(metadata: CheckpointMetadata, plan: ExecutionPlan, path: str) -> None:
    """Refuse records in flight between subtasks that an edge did not have.

    :param path: how errors name the metadata
    :raises CorruptStateError: when there are some
    """
    parallelism = {operator.uid: operator.parallelism for operator in metadata.operators}
    edges = {edge.name: edge for edge in plan.edges}
    for handle in metadata.channel_state():
        for piece in handle.pieces:
            name = piece.channel
            edge = edges.get(name.edge)
            if edge is None:
                continue
            moved = _Edge(plan, edge, parallelism).moved
            if name.sender >= moved.old_senders or name.receiver >= moved.old_receivers:
                raise CorruptStateError(
                    path,
                    f"malformed: there are records in flight on {moved.name} from subtask {name.sender} to"
                    f" {name.receiver}, but the edge led from {moved.old_senders} to {moved.old_receivers} subtasks",
                )


def _read(reader: StateReader, handles: Iterable[ChannelStateHandle | None]) -> _Pieces:
    pieces: _Pieces = {}
    for handle in handles:
        if handle is not None:
            for name, columns in read_channel_state(reader, handle).items():
                assert isinstance(name, ChannelName)
                pieces.setdefault(name.edge, {})[name.sender, name.receiver] = columns
    return pieces


class _Edge:
    """One edge, in today's plan and in that of the checkpoint."""

    def __init__(self, plan: ExecutionPlan, edge: EdgePlan, old_parallelism: Mapping[str, int]) -> None:
        source, target = plan.vertices[edge.source_vertex], plan.vertices[edge.target_vertex]
        sender_uid = source.operators[edge.source_position].uid
        self._edge = edge
        self._sender_name = source.operators[edge.source_position].name
        self._receivers = target.parallelism
        self._max_parallelism = target.max_parallelism
        declared = edge.partitioner.key_type if isinstance(edge.partitioner, HashPartitioner) else None
        self.key_type: KeyType | None = declared
        self.moved = ChannelStateEdge(
            edge.name,
            edge.partitioner.name,
            old_parallelism.get(sender_uid, source.parallelism),
            old_parallelism.get(target.operators[0].uid, target.parallelism),
            source.parallelism,
            target.parallelism,
            target.max_parallelism,
        )

    def spread(
        self,
        pieces: Mapping[tuple[int, int], list[RecordColumns]],
        causes_of: Callable[[tuple[int, int]], Sequence[Cause] | None] | None,
    ) -> Iterable[tuple[tuple[int, int], list[Batch]]]:
        """The pieces that each new pair reads. ``causes_of``: of the records of an old pair, in their order."""
        if not pieces:
            return
        self._settle_key_type(pieces.values())
        # Every piece has a new owner, those of subtasks that are gone too (mutant "in-flight data lost on downscale").
        for pair, read in self._planned(pieces).items():
            batches: list[Batch] = []
            for old, columns in read:
                filtered = needs_filter(self.moved, old[1])
                whole = map(_batch, columns) if causes_of is None else _traced(columns, causes_of(old))
                batches += [kept for one in whole if len(kept := self._kept(one, pair[1]) if filtered else one)]
            yield pair, batches

    def _planned(
        self, pieces: Mapping[tuple[int, int], list[RecordColumns]]
    ) -> Mapping[tuple[int, int], tuple[tuple[tuple[int, int], list[RecordColumns]], ...]]:
        try:
            return plan_channel_state(self.moved, pieces)
        except UnsupportedMappingError as error:
            if not self._edge.is_feedback:
                raise
            moved = self.moved
            raise UnsupportedMappingError(
                f"edge {moved.name!r}: the checkpoint holds records that were on their way back to the head of an "
                f"iteration, from {moved.old_senders} to {moved.old_receivers} subtasks, and the job now has "
                f"{moved.new_senders} and {moved.new_receivers}\n"
                f"  records on a {moved.partitioner} edge belong to one pair of subtasks and to nobody else\n"
                "  keep the parallelism of both operators, or close the iteration with feedback.rebalance()"
            ) from error

    def _settle_key_type(self, pieces: Iterable[list[RecordColumns]]) -> None:
        if not isinstance(self._edge.partitioner, HashPartitioner):
            return
        for one in (one for columns in pieces for one in columns):
            if one.keys is None:
                instead = "" if self._edge.is_feedback else ", or from a savepoint, which holds no such records"
                raise JobChangedError(
                    f"edge {self._edge.name!r}: the checkpoint holds records in flight on it that have no keys, and "
                    "the job now spreads them by key\n"
                    f"  restore with the partitioning that the job had{instead}"
                )
            if self.key_type is None:
                self.key_type = infer_key_type(one.keys[0])

    def _kept(self, batch: Batch, receiver: int) -> Batch:
        """The records that the present partitioner sends to ``receiver``."""
        partitioner = self._edge.partitioner
        if isinstance(partitioner, HashPartitioner):
            assert batch.keys is not None
            assert self.key_type is not None
            group_of = key_group_function(self.key_type, self._max_parallelism)
            targets = [
                operator_index_for_key_group(self._max_parallelism, self._receivers, group_of(key))
                for key in batch.keys
            ]
        else:
            assert isinstance(partitioner, CustomPartitioner), partitioner
            targets = self._chosen(partitioner.choose, batch.values)
        return batch.take([position for position, target in enumerate(targets) if target == receiver])

    def _chosen(self, choose: Callable[[Any, int], int], values: Sequence[Any]) -> list[int]:
        targets: list[int] = []
        try:
            for value in values:
                target = choose(value, self._receivers)
                if not 0 <= target < self._receivers:
                    raise ValueError(f"channel {target!r} is not in 0..{self._receivers - 1}")
                targets.append(target)
        except Exception as error:
            raise UserFunctionError(self._sender_name, "custom partitioner", values[len(targets)], 0, error) from error
        return targets


def _traced(columns: Sequence[RecordColumns], causes: Sequence[Cause] | None) -> Iterator[Batch]:
    """The records with the cause of each, ``None`` where it is not known."""
    if causes is None:
        causes = [None] * sum(len(one.values) for one in columns)
    first = 0
    for one in columns:
        count = len(one.values)
        yield TracedBatch.of(_batch(one), list(causes[first : first + count]))
        first += count
    assert first == len(causes), (first, len(causes))


def _batch(columns: RecordColumns) -> Batch:
    stamps, keys = columns.timestamps, columns.keys
    return Batch(list(columns.values), None if stamps is None else list(stamps), None if keys is None else list(keys))
