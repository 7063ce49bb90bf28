"""The new places of records that were under way on a channel when the parallelism changes: pure functions on data.

Rules (Flink: ``SubtaskStateMapper``, ``TaskStateAssignment``, ``StreamPartitioner``)
---------------------------------------------------------------------------------------
A *mapper* says which old subtasks feed new subtask ``j`` of ``p``:

==================  ==================================================================================
FIRST               ``j = 0``: all of them; the others: none
FULL                all of them, for every ``j``
RANGE               those whose range of key groups overlaps that of ``j``
ROUND_ROBIN         ``j, j + p, j + 2p, ...``
ARBITRARY           any assignment that gives each old subtask to one new one; here that of ROUND_ROBIN
UNSUPPORTED         the records cannot be given to any other subtask
==================  ==================================================================================

* An old subtask that feeds several new ones is *ambiguous*: its records must be filtered one by one. Each reader
  keeps only the records that the current partitioner sends to it.
* A partitioner has two mappers. Its downstream mapper moves the receivers' ends, its upstream mapper the senders'.
  Records under way from old sender ``a`` to old receiver ``b`` are read by every new pair that ``(a, b)`` maps to,
  whichever side had captured them.
* Nothing changed at either end: every subtask gets back exactly its own, whatever the partitioner, and nothing is
  filtered. In all other cases the mappers apply, also at the end that did not change: a custom partitioner may depend
  on more than the number of its receivers.
* The mapper itself takes RANGE with 32,768 key groups, as Flink does. A plan for an edge takes the max parallelism of
  the receivers. With a parallelism in the hundreds the fixed grid is too coarse to meet every overlap, and no
  subtask would get some of the records.
* Forward, rescale and broadcast edges refuse unaligned barriers, hence have no records under way that must move.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from enum import Enum
from functools import lru_cache
from typing import NamedTuple, TypeVar

from engine.elements.errors import JobChangedError
from state_backends.base import UPPER_BOUND_MAX_PARALLELISM, key_group_range_for_index, operator_index_for_key_group

Piece = TypeVar("Piece")


class UnsupportedMappingError(JobChangedError):
    """Records are under way on an edge whose partitioner cannot hand them to other subtasks."""


class SubtaskMapping(NamedTuple):
    """Which old subtasks feed each new one, ascending, and which of the old ones feed more than one."""

    new_to_old: tuple[tuple[int, ...], ...]
    ambiguous_old: tuple[int, ...]

    def is_ambiguous(self, old_subtask: int) -> bool:
        """Whether this old subtask feeds more than one new one."""
        at = bisect_left(self.ambiguous_old, old_subtask)
        return at < len(self.ambiguous_old) and self.ambiguous_old[at] == old_subtask


class SubtaskStateMapper(Enum):
    """The rule by which one end of an edge is moved (Flink: ``SubtaskStateMapper``)."""

    FIRST = "first"
    FULL = "full"
    RANGE = "range"
    ROUND_ROBIN = "round robin"
    ARBITRARY = "arbitrary"
    UNSUPPORTED = "unsupported"

    def mapping(
        self, old_parallelism: int, new_parallelism: int, max_parallelism: int = UPPER_BOUND_MAX_PARALLELISM
    ) -> SubtaskMapping:
        """The whole assignment. ``max_parallelism``: the number of key groups, which only RANGE uses.

        :raises UnsupportedMappingError: for UNSUPPORTED
        """
        return _mapping(self, old_parallelism, new_parallelism, max_parallelism)


class PartitionerStateMapping(NamedTuple):
    """How the two ends of an edge move, and whether a node after such an edge refuses unaligned barriers."""

    downstream: SubtaskStateMapper
    upstream: SubtaskStateMapper
    is_unaligned_refused: bool


_MOVED_BY_RECEIVER = {
    "hash": SubtaskStateMapper.RANGE,
    "rebalance": SubtaskStateMapper.ROUND_ROBIN,
    "shuffle": SubtaskStateMapper.ROUND_ROBIN,
    "global": SubtaskStateMapper.FIRST,
    "custom": SubtaskStateMapper.FULL,
}
_NOT_MOVED = ("forward", "rescale", "broadcast")

PARTITIONER_STATE_MAPPINGS: Mapping[str, PartitionerStateMapping] = {
    **{
        name: PartitionerStateMapping(mapper, SubtaskStateMapper.ARBITRARY, is_unaligned_refused=False)
        for name, mapper in _MOVED_BY_RECEIVER.items()
    },
    **{
        name: PartitionerStateMapping(
            SubtaskStateMapper.UNSUPPORTED, SubtaskStateMapper.UNSUPPORTED, is_unaligned_refused=True
        )
        for name in _NOT_MOVED
    },
}
"""By the name of the partitioner."""


class ChannelStateEdge(NamedTuple):
    """An edge on which records were under way, with the parallelism of both ends then and now.

    ``name``             its name in errors, such as ``map -> sum``;
    ``partitioner``      the name of the partitioner it has *now*;
    ``max_parallelism``  that of the receivers, which never changes once there is state.
    """

    name: str
    partitioner: str
    old_senders: int
    old_receivers: int
    new_senders: int
    new_receivers: int
    max_parallelism: int

    @property
    def is_unchanged(self) -> bool:
        """Whether both ends have the parallelism they had."""
        return self.old_senders == self.new_senders and self.old_receivers == self.new_receivers


class _EndMappings(NamedTuple):
    senders: SubtaskMapping
    receivers: SubtaskMapping


def plan_channel_state(
    edge: ChannelStateEdge, old: Mapping[tuple[int, int], Piece]
) -> Mapping[tuple[int, int], tuple[tuple[tuple[int, int], Piece], ...]]:
    """The new readers of the records that were under way on an edge.

    :param old: for each old (sender subtask, receiver subtask) that had any, its records
    :returns: for each new (sender subtask, receiver subtask) that gets something, in order, the old pairs it reads
        with their records, in the order of the old pairs. Whether a piece must be filtered: :func:`needs_filter`.
    :raises UnsupportedMappingError: when there are records and the partitioner cannot give them to other subtasks
    """
    pieces = sorted(old.items(), key=lambda item: item[0])
    for (sender, receiver), _ in pieces:
        assert 0 <= sender < edge.old_senders, (edge, sender)
        assert 0 <= receiver < edge.old_receivers, (edge, receiver)
    if edge.is_unchanged or not pieces:
        return {pair: ((pair, piece),) for pair, piece in pieces}
    mappings = _end_mappings(edge)
    new_senders = _inverted(mappings.senders, edge.old_senders)
    new_receivers = _inverted(mappings.receivers, edge.old_receivers)
    planned: dict[tuple[int, int], list[tuple[tuple[int, int], Piece]]] = {}
    for (sender, receiver), piece in pieces:
        for new_sender in new_senders[sender]:
            for new_receiver in new_receivers[receiver]:
                planned.setdefault((new_sender, new_receiver), []).append(((sender, receiver), piece))
    return {pair: tuple(planned[pair]) for pair in sorted(planned)}


def needs_filter(edge: ChannelStateEdge, old_receiver: int) -> bool:
    """Whether several new receivers read the records under way to ``old_receiver``. Then each of them must keep only
    the records that the current partitioner sends to it."""
    assert 0 <= old_receiver < edge.old_receivers, (edge, old_receiver)
    if edge.is_unchanged:
        return False
    # Several receivers read it: each keeps the records that the current partitioner sends to it
    # (mutant "custom partitioner not asked").
    return _end_mappings(edge).receivers.is_ambiguous(old_receiver)


def redistribute_channel_state(
    mapper: SubtaskStateMapper, old: Sequence[Sequence[Piece]], new_parallelism: int
) -> tuple[tuple[Piece, ...], ...]:
    """For each new subtask the pieces of the old subtasks that feed it, one after the other."""
    mapping = mapper.mapping(len(old), new_parallelism)
    return tuple(tuple(piece for subtask in feeding for piece in old[subtask]) for feeding in mapping.new_to_old)


def _end_mappings(edge: ChannelStateEdge) -> _EndMappings:
    assert edge.partitioner in PARTITIONER_STATE_MAPPINGS, edge
    by_name = PARTITIONER_STATE_MAPPINGS[edge.partitioner]
    try:
        return _EndMappings(
            by_name.upstream.mapping(edge.old_senders, edge.new_senders),
            by_name.downstream.mapping(edge.old_receivers, edge.new_receivers, edge.max_parallelism),
        )
    except UnsupportedMappingError as error:
        raise UnsupportedMappingError(
            f"edge {edge.name!r}: the checkpoint holds records that were under way from {edge.old_senders} to "
            f"{edge.old_receivers} subtasks, and the job now has {edge.new_senders} and {edge.new_receivers}\n"
            f"  records on a {edge.partitioner} edge belong to one pair of subtasks and cannot be given to another\n"
            "  keep the parallelism of both operators, or restore from a savepoint, which never holds such records"
        ) from error


# Called once per edge and once per piece: the answer for a large job is a table of some thousand numbers.
@lru_cache(maxsize=256)
def _mapping(
    mapper: SubtaskStateMapper, old_parallelism: int, new_parallelism: int, max_parallelism: int
) -> SubtaskMapping:
    assert old_parallelism >= 1, old_parallelism
    assert new_parallelism >= 1, new_parallelism
    everybody = tuple(range(old_parallelism))
    match mapper:
        case SubtaskStateMapper.FIRST:
            new_to_old: tuple[tuple[int, ...], ...] = (everybody, *((),) * (new_parallelism - 1))
        case SubtaskStateMapper.FULL:
            new_to_old = (everybody,) * new_parallelism
        case SubtaskStateMapper.RANGE:
            new_to_old = _overlapping(old_parallelism, new_parallelism, max_parallelism)
        case SubtaskStateMapper.ROUND_ROBIN | SubtaskStateMapper.ARBITRARY:
            new_to_old = tuple(
                tuple(range(subtask, old_parallelism, new_parallelism)) for subtask in range(new_parallelism)
            )
        case SubtaskStateMapper.UNSUPPORTED:
            raise UnsupportedMappingError("records that were under way cannot be given to other subtasks")
    readers = [0] * old_parallelism
    for feeding in new_to_old:
        for subtask in feeding:
            readers[subtask] += 1
    return SubtaskMapping(new_to_old, tuple(subtask for subtask, count in enumerate(readers) if count > 1))


def _overlapping(old_parallelism: int, new_parallelism: int, max_parallelism: int) -> tuple[tuple[int, ...], ...]:
    new_to_old = []
    for subtask in range(new_parallelism):
        own = key_group_range_for_index(max_parallelism, new_parallelism, subtask)
        first = operator_index_for_key_group(max_parallelism, old_parallelism, own.first)
        last = operator_index_for_key_group(max_parallelism, old_parallelism, own.last)
        new_to_old.append(tuple(range(first, last + 1)))
    return tuple(new_to_old)


def _inverted(mapping: SubtaskMapping, old_parallelism: int) -> list[list[int]]:
    """For each old subtask the new ones that it feeds."""
    fed: list[list[int]] = [[] for _ in range(old_parallelism)]
    for new, feeding in enumerate(mapping.new_to_old):
        for old in feeding:
            fed[old].append(new)
    return fed
