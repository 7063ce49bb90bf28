"""The plan: a job graph expanded once into vertices, subtasks and channels, as plain data that runs reuse.

Nothing here depends on networkx; the runtime reads these tuples and touches the graph no more.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from engine.elements.operator import OperatorFactory
from engine.elements.operator_coordination import CoordinatorFactory
from engine.graph.partitioner import Partitioner
from state_backends.base import KeyType, value_class


@dataclass(frozen=True, slots=True)
class OperatorPlan:
    """One operator inside a vertex.

    ``position``        index in the chain; the head has position 0 and chains are in topological order;
    ``keyed``           whether it comes directly after a hash edge and so owns keyed state;
    ``key_type``        declared type of its keys, ``None`` = that of restored state, or else of the first key;
    ``chained_outputs`` ``(side tag or None, position)`` of operators of the same chain that it feeds;
    ``edge_outputs``    ``(side tag or None, edge index)`` of network edges that it feeds;
    ``generated_uid``   the uid it had before it was given one, if it was: state stored under that is still its own;
    ``create_coordinator``  makes its coordinator, ``None`` when it has none; part of no fingerprint.
    """

    uid: str
    name: str
    factory: OperatorFactory
    position: int
    keyed: bool = False
    key_type: KeyType | None = None
    chained_outputs: tuple[tuple[str | None, int], ...] = ()
    edge_outputs: tuple[tuple[str | None, int], ...] = ()
    generated_uid: str | None = None
    create_coordinator: CoordinatorFactory | None = None


@dataclass(frozen=True, slots=True)
class VertexPlan:
    """A chain of operators that runs as one task per subtask (Flink: ``JobVertex``)."""

    index: int
    name: str
    parallelism: int
    max_parallelism: int
    operators: tuple[OperatorPlan, ...]
    is_source: bool
    input_edges: tuple[int, ...] = ()
    output_edges: tuple[int, ...] = ()
    is_max_parallelism_derived: bool = False
    """Whether ``max_parallelism`` follows from the parallelism because it was not declared. Only such a number may
    give way to that of a checkpoint (Flink: ``JobVertex.canRescaleMaxParallelism``); part of no fingerprint."""

    has_coordinators: bool = field(init=False, repr=False, compare=False)
    """Whether an operator of the chain has a coordinator."""

    _names: dict[int, tuple[str, ...]] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        coordinated = any(operator.create_coordinator is not None for operator in self.operators)
        object.__setattr__(self, "has_coordinators", coordinated)

    def names_of(self, subtask: int) -> tuple[str, ...]:
        """Every name that faults and costs may use for one subtask, the most specific first: ``name[subtask]`` of the
        vertex and of each operator chained into it, then the same without the subtask."""
        known = self._names.get(subtask)
        if known is None:
            names = tuple(dict.fromkeys((self.name, *(operator.name for operator in self.operators))))
            known = self._names[subtask] = (*(f"{name}[{subtask}]" for name in names), *names)
        return known


@dataclass(frozen=True, slots=True)
class EdgePlan:
    """A network edge between vertices, from one operator of the source chain to the head of the target.

    ``target_input``        which input of the head it feeds: 0 the first or only one, 1 the second one of an operator
                            with two inputs;
    ``name``                ``source uid>side tag>target uid#n``, ``n`` counting edges that are the same in all that:
                            captured data of its channels is stored under it. It stays when other edges come and go;
    ``supports_unaligned``  whether barriers on it may overtake records. Never when any input of its target is
                            pointwise or a broadcast: redistribution could not tell where their records in flight belong
                            (Flink: ``StreamingJobGraphGenerator.shouldDisableUnalignedCheckpointing``);
    ``is_feedback``         whether it leads back to the head of an iteration. Every cycle of a plan has such an edge.
    """

    index: int
    source_vertex: int
    source_position: int
    target_vertex: int
    partitioner: Partitioner
    side_tag: str | None = None
    target_input: int = 0
    name: str = ""
    supports_unaligned: bool = True
    is_feedback: bool = False


@value_class
class ChannelPlan:
    """One FIFO from a sending to a receiving subtask.

    ``output_index`` is the position among the sender's channels of this edge, ``input_index`` the position
    among all input channels of the receiver (edges in the order of ``VertexPlan.input_edges``, then senders in
    order).
    """

    index: int
    edge: int
    sender_vertex: int
    sender_subtask: int
    output_index: int
    receiver_vertex: int
    receiver_subtask: int
    input_index: int


@dataclass(frozen=True, slots=True)
class SubtaskPlan:
    """One parallel instance of a vertex; ``name`` is ``vertex name[subtask]``, which faults refer to."""

    index: int
    vertex: int
    subtask: int
    name: str
    input_channels: tuple[int, ...]
    output_channels: tuple[tuple[int, tuple[int, ...]], ...]
    """``(edge index, channel indices in output order)`` for every output edge."""


@dataclass(frozen=True, slots=True)
class ExecutionPlan:
    """Everything the runtime needs to build the tasks of one attempt."""

    job_name: str
    vertices: tuple[VertexPlan, ...]
    edges: tuple[EdgePlan, ...]
    subtasks: tuple[SubtaskPlan, ...]
    channels: tuple[ChannelPlan, ...]
    fingerprint: str
    """Digest over uids, names, parallelisms and edges: two plans with one fingerprint are restorable into
    each other and replay each other's choices."""
    has_loops: bool = field(init=False, repr=False, compare=False)
    """Whether an edge leads back."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "has_loops", any(edge.is_feedback for edge in self.edges))

    def __repr__(self) -> str:
        """One line: vertices, subtasks and channels would fill screens."""
        counted = (
            (self.vertices, "vertex", "vertices"), (self.subtasks, "subtask", "subtasks"),
            (self.channels, "channel", "channels"),
        )  # fmt: skip
        counts = [f"{len(some):,} {one if len(some) == 1 else more}" for some, one, more in counted]
        return f"<ExecutionPlan of job {self.job_name!r}: {', '.join(counts)}>"

    def _repr_html_(self) -> str:
        """For notebooks: the picture."""
        from engine.graph.explain_svg import explain_svg

        return explain_svg(self)

    def with_max_parallelism(self, by_vertex: Mapping[int, int]) -> ExecutionPlan:
        """The plan with other numbers of key groups for some vertices; itself when there are none.

        It keeps its fingerprint: the user has not chosen the numbers that are replaced.
        """
        if not by_vertex:
            return self
        vertices = tuple(
            replace(vertex, max_parallelism=by_vertex.get(vertex.index, vertex.max_parallelism))
            for vertex in self.vertices
        )
        return replace(self, vertices=vertices)

    def with_operators(self, change: Callable[[OperatorPlan], OperatorPlan]) -> ExecutionPlan:
        """The plan with each operator as ``change`` returns it. Vertices without a changed operator are the same
        objects."""
        vertices = []
        for vertex in self.vertices:
            operators = tuple(map(change, vertex.operators))
            vertices.append(replace(vertex, operators=operators) if operators != vertex.operators else vertex)
        return replace(self, vertices=tuple(vertices))

    def operators(self) -> tuple[tuple[VertexPlan, OperatorPlan], ...]:
        """Every operator with the vertex it runs in, in plan order."""
        return tuple((vertex, operator) for vertex in self.vertices for operator in vertex.operators)
