"""Judges a job graph before it is expanded: every rule a graph must keep, one function per rule.

A rule yields sentences that say which operator is wrong, why, and how to fix it. All rules are checked, so
that a user sees every problem of a job at once; only ``validate`` raises.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from engine.elements.errors import JobGraphError
from engine.graph.job_graph import JobGraph, NodeRole, StreamEdge
from engine.graph.naming import duplicates, name_problem, uid_problem
from engine.graph.partitioner import ForwardPartitioner
from state_backends.base import UPPER_BOUND_MAX_PARALLELISM

MOST_CHANNELS = 1_000_000
"""Channels of all shuffles of a job. Each takes about 2.8 KiB of memory, and about 20 µs of a processor for each of the
four or more events that go through it: its watermark, the barrier of each checkpoint, the end of its data and its end.
This many take 100 s."""

Rule = Callable[[JobGraph], Iterator[str]]


def validate(graph: JobGraph, job_name: str) -> None:
    """Raise one ``JobGraphError`` with every problem of the graph; return when there is none."""
    problems = find_problems(graph)
    if not problems:
        return
    if len(problems) == 1:
        raise JobGraphError(f"job {job_name!r} cannot run: {problems[0]}")
    listed = "\n".join(f"  {number}. {problem}" for number, problem in enumerate(problems, 1))
    raise JobGraphError(f"job {job_name!r} cannot run, {len(problems)} problems:\n{listed}")


def find_problems(graph: JobGraph) -> list[str]:
    """Every broken rule, in the order of ``RULES`` and of definition."""
    return [problem for rule in RULES for problem in rule(graph)]


def _has_a_source(graph: JobGraph) -> Iterator[str]:
    if not any(node.role is NodeRole.SOURCE for node in graph.nodes()):
        yield "it has no source; begin with job.source(...)"


def _labels_are_usable(graph: JobGraph) -> Iterator[str]:
    nodes = graph.nodes()
    for node in nodes:
        if node.declared_name is not None and (problem := name_problem(node.declared_name)):
            yield f"a {node.kind} operator: {problem}"
        if node.declared_uid is not None and (problem := uid_problem(node.declared_uid)):
            yield f"operator {graph.name_of(node.id)!r}: {problem}"
    for name, count in duplicates(node.declared_name for node in nodes):
        yield f"{count} operators have the name {name!r}; give each its own name=, or none"
    for uid, count in duplicates(node.declared_uid for node in nodes):
        holders = ", ".join(repr(graph.name_of(node.id)) for node in nodes if node.declared_uid == uid)
        yield (
            f"{count} operators have the uid {uid!r} ({holders}), under which state is filed; give each its own uid="
        )


def _parallelism_is_in_range(graph: JobGraph) -> Iterator[str]:
    beyond: dict[tuple[int, int], list[str]] = {}
    for node in graph.nodes():
        where, declared = f"operator {graph.name_of(node.id)!r}", node.declared_max_parallelism
        limit = UPPER_BOUND_MAX_PARALLELISM if declared is None else declared
        if not 1 <= limit <= UPPER_BOUND_MAX_PARALLELISM:
            yield (
                f"{where} has max_parallelism={declared}, outside 1..{UPPER_BOUND_MAX_PARALLELISM}; "
                "choose a number of key groups in that range"
            )
        elif node.parallelism < 1:
            yield f"{where} has parallelism={node.parallelism}; it must be at least 1"
        elif node.parallelism > limit:
            beyond.setdefault((node.parallelism, limit), []).append(graph.name_of(node.id))
    for (parallelism, limit), names in beyond.items():
        # Reported once for all operators of one parallelism: mostly it is the job's.
        more = "" if len(names) == 1 else f" (and {len(names) - 1} more)"
        raised = f", or raise max_parallelism= to {parallelism} at least"
        yield (
            f"operator {names[0]!r}{more} has parallelism={parallelism} above its max parallelism {limit}: some "
            f"subtasks would own no key group; lower the parallelism to {limit} at most"
            f"{raised if parallelism <= UPPER_BOUND_MAX_PARALLELISM else ''}"
        )


def _channels_fit(graph: JobGraph) -> Iterator[str]:
    total = _channels(graph)
    if total <= MOST_CHANNELS:
        return
    widest = max(graph.edges(), key=lambda edge: _channels_of(graph, edge))
    # The largest parallelism with which all fits: found by halving, since fewer subtasks never have more channels.
    fits, too_many = 0, max(node.parallelism for node in graph.nodes())
    while too_many - fits > 1:
        middle = (fits + too_many) // 2
        if _channels(graph, middle) <= MOST_CHANNELS:
            fits = middle
        else:
            too_many = middle
    sender, receiver = graph.node(widest.source), graph.node(widest.target)
    yield (
        f"{total:,} channels would lead from each subtask to each, {_channels_of(graph, widest):,} of them from the "
        f"{sender.parallelism} of {graph.name_of(sender.id)!r} to the {receiver.parallelism} of "
        f"{graph.name_of(receiver.id)!r}; no more than {MOST_CHANNELS:,} can be simulated: "
        f"lower the parallelism to {fits} at most"
    )


def _channels(graph: JobGraph, most: int | None = None) -> int:
    """How many there are; ``most``: if no operator had more subtasks than that."""
    return sum(_channels_of(graph, edge, most) for edge in graph.edges())


def _channels_of(graph: JobGraph, edge: StreamEdge, most: int | None = None) -> int:
    if edge.partitioner.pointwise:
        return 0  # one for each subtask: few, and none within a chain
    pair = graph.node(edge.source).parallelism, graph.node(edge.target).parallelism
    senders, receivers = pair if most is None else (min(one, most) for one in pair)
    return senders * receivers


def _roles_are_kept(graph: JobGraph) -> Iterator[str]:
    for node in graph.nodes():
        name, inputs, outputs = graph.name_of(node.id), graph.in_edges(node.id), graph.out_edges(node.id)
        if node.role is NodeRole.SOURCE and inputs:
            yield (
                f"source {name!r} has an input from {graph.name_of(inputs[0].source)!r}; "
                "a source reads only its splits: join the two streams with union"
            )
        if node.role is not NodeRole.SOURCE and not inputs:
            yield f"operator {name!r} has no input; connect a stream to it"
        if node.role is NodeRole.SINK and outputs:
            yield (
                f"sink {name!r} feeds {graph.name_of(outputs[0].target)!r}; nothing comes out of a sink: "
                "connect the stream before it to both"
            )
        if node.role is not NodeRole.SINK and not outputs:
            yield (
                f"operator {name!r} leads nowhere: its records would be computed and dropped; "
                "end the stream with .sink(...), .print() or .collect(...)"
            )


def _forward_keeps_parallelism(graph: JobGraph) -> Iterator[str]:
    for edge in graph.edges():
        sender, receiver = graph.node(edge.source), graph.node(edge.target)
        if isinstance(edge.partitioner, ForwardPartitioner) and sender.parallelism != receiver.parallelism:
            yield (
                f"forward edge from {graph.name_of(sender.id)!r} (parallelism {sender.parallelism}) to "
                f"{graph.name_of(receiver.id)!r} (parallelism {receiver.parallelism}): forward joins "
                "subtask i to subtask i; use .rebalance() or .rescale(), or give both the same parallelism"
            )


def _inputs_are_fed(graph: JobGraph) -> Iterator[str]:
    for node in graph.nodes():
        name, edges = graph.name_of(node.id), graph.in_edges(node.id)
        fed = {edge.target_input for edge in edges}
        for edge in edges:
            if not 0 <= edge.target_input < node.inputs:
                yield (
                    f"the edge from {graph.name_of(edge.source)!r} leads to input {edge.target_input + 1} of operator "
                    f"{name!r}, which has {'one input' if node.inputs == 1 else f'{node.inputs} inputs'}; "
                    "connect the two streams with first.connect(second)"
                )
        missing = [number + 1 for number in range(node.inputs) if number not in fed]
        # An operator without any input gets only that message.
        if edges and missing:
            yield (
                f"operator {name!r} has {node.inputs} inputs, but nothing leads to input {missing[0]}; "
                "connect the two streams with first.connect(second)"
            )


def _keyed_operators_have_keys(graph: JobGraph) -> Iterator[str]:
    for node in graph.nodes():
        if node.requires_key and graph.in_edges(node.id) and not graph.is_keyed(node.id):
            yield (
                f"operator {graph.name_of(node.id)!r} keeps state per key but its input is not keyed; "
                "call .key_by(...) right before it"
            )
        types = dict.fromkeys(str(key_type or "not declared") for key_type in graph.key_types_of(node.id))
        if graph.is_keyed(node.id) and len(types) > 1:
            # -1 as an INT and as an undeclared LONG have different hash codes: one key would have two owners.
            yield (
                f"the inputs of operator {graph.name_of(node.id)!r} have different key types "
                f"({', '.join(types)}); declare the same key_type= for all of them"
            )


def _no_cycle(graph: JobGraph) -> Iterator[str]:
    cycle = graph.find_cycle()
    if cycle is not None:
        path = " -> ".join(repr(graph.name_of(node_id)) for node_id in (*cycle, cycle[0]))
        yield (
            f"records would run in a circle: {path}; begin a loop with stream.iterate() and lead its records back with "
            "iteration.close_with(feedback), or remove one of the edges"
        )


def _feedback_leads_round(graph: JobGraph) -> Iterator[str]:
    for edge in graph.edges():
        if not edge.is_feedback:
            continue
        source, head = graph.name_of(edge.source), graph.name_of(edge.target)
        if not graph.node(edge.target).is_iteration_head:
            yield (
                f"the feedback edge from {source!r} leads to {head!r}, which begins no iteration; "
                "feed back with iteration.close_with(feedback)"
            )
        elif edge.source == edge.target:
            yield f"iteration {head!r} feeds its records back to itself as they are; put an operator between the two"
        elif not graph.leads_to(edge.target, edge.source):
            yield (
                f"iteration {head!r} is closed with records of {source!r}, to which it does not lead; "
                "feed back a stream that comes from the iteration, and join others with union before .iterate()"
            )


def _iterations_have_a_way_in_and_out(graph: JobGraph) -> Iterator[str]:
    for node in graph.nodes():
        inputs = graph.in_edges(node.id)
        if not node.is_iteration_head or not inputs:
            continue
        name, members = graph.name_of(node.id), graph.loop_of(node.id)
        if not any(edge.is_feedback for edge in inputs):
            yield f"iteration {name!r} is not closed: nothing is fed back; call .close_with(feedback), or leave it out"
        elif all(edge.is_feedback for edge in inputs):
            yield f"iteration {name!r} has no input but its own feedback; call .iterate() on a stream"
        elif all(edge.target in members for member in members for edge in graph.out_edges(member)):
            yield (
                f"nothing leaves iteration {name!r}: its records would be computed and dropped; "
                "end a stream of it with .sink(...), .print() or .collect(...)"
            )


RULES: tuple[Rule, ...] = (
    _has_a_source,
    _labels_are_usable,
    _parallelism_is_in_range,
    _channels_fit,
    _roles_are_kept,
    _forward_keeps_parallelism,
    _inputs_are_fed,
    _keyed_operators_have_keys,
    _no_cycle,
    _feedback_leads_round,
    _iterations_have_a_way_in_and_out,
)
