"""Draws a plan: as indented text for a terminal, as a Mermaid flowchart for a page. The same plan, the same bytes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from engine.graph.plan import EdgePlan, ExecutionPlan, OperatorPlan, VertexPlan

TEXT_LEGEND = "-> call inside the task   => channels to another task"
FEEDBACK_LEGEND = "~> channels back to the head of an iteration"


def explain_text(plan: ExecutionPlan) -> str:
    """One block per vertex: its chain as a tree, with every network edge below the operator that feeds it."""
    channels = channel_counts(plan)
    lines = [
        f"job {plan.job_name}: {_count(len(plan.vertices), 'vertex', 'vertices')}, "
        f"{_count(len(plan.subtasks), 'subtask')}, {_count(len(plan.channels), 'channel')}",
        "   ".join([TEXT_LEGEND, *([FEEDBACK_LEGEND] if any(edge.is_feedback for edge in plan.edges) else [])]),
    ]
    for vertex in plan.vertices:
        lines += ["", f"[{vertex.index}] {vertex.name}   {_parallelism_text(vertex)}"]
        lines.append(f"    {operator_text(vertex, vertex.operators[0])}")
        lines += [f"    {line}" for line in _tree(plan, vertex, channels)]
    return "\n".join(lines) + "\n"


def _tree(plan: ExecutionPlan, vertex: VertexPlan, channels: Counter[int]) -> Iterator[str]:
    """Everything below the head of a chain, as the branches of a tree, in depth-first order."""
    pending = _branches(plan, vertex, 0, "", channels)
    while pending:
        prefix, last, text, position = pending.pop()
        yield f"{prefix}{'└─' if last else '├─'} {text}"
        if position is not None:
            pending += _branches(plan, vertex, position, prefix + ("   " if last else "│  "), channels)


def _branches(
    plan: ExecutionPlan, vertex: VertexPlan, position: int, prefix: str, channels: Counter[int]
) -> list[tuple[str, bool, str, int | None]]:
    """The targets of one operator, chained operators before network edges; last one first, as on a stack."""
    operator = vertex.operators[position]
    texts: list[tuple[str, int | None]] = []
    for tag, child in operator.chained_outputs:
        texts.append((f"-> {_tag_text(tag)}{operator_text(vertex, vertex.operators[child])}", child))
    for _, edge_index in operator.edge_outputs:
        edge = plan.edges[edge_index]
        target = f"[{edge.target_vertex}] {plan.vertices[edge.target_vertex].operators[0].name}"
        texts.append((f"{'~>' if edge.is_feedback else '=>'} {target}   {edge_text(edge, channels)}", None))
    return [(prefix, below == 0, *text) for below, text in enumerate(reversed(texts))]


def explain_mermaid(plan: ExecutionPlan) -> str:
    """A flowchart: a subgraph per vertex, thin arrows inside a chain, thick arrows where channels are, dotted arrows
    where they lead back."""
    channels = channel_counts(plan)
    lines = ["flowchart LR"]
    for vertex in plan.vertices:
        lines.append(f'  subgraph v{vertex.index}["{_parallelism_text(vertex)}"]')
        for operator in vertex.operators:
            text = _mermaid_text(operator_text(vertex, operator))
            lines.append(f'    {_mermaid_id(vertex, operator.position)}["{text}"]')
        for operator in vertex.operators:
            for tag, child in operator.chained_outputs:
                label = f'|"{_mermaid_text(_tag_text(tag).rstrip(": "))}"|' if tag is not None else ""
                source, target = _mermaid_id(vertex, operator.position), _mermaid_id(vertex, child)
                lines.append(f"    {source} -->{label} {target}")
        lines.append("  end")
    for edge in plan.edges:
        source = _mermaid_id(plan.vertices[edge.source_vertex], edge.source_position)
        target = _mermaid_id(plan.vertices[edge.target_vertex], 0)
        arrow = "-.->" if edge.is_feedback else "==>"
        lines.append(f'  {source} {arrow}|"{_mermaid_text(edge_text(edge, channels))}"| {target}')
    return "\n".join(lines) + "\n"


def channel_counts(plan: ExecutionPlan) -> Counter[int]:
    """Channels by the number of their edge."""
    return Counter(channel.edge for channel in plan.channels)


def operator_text(vertex: VertexPlan, operator: OperatorPlan) -> str:
    """An operator in words: its name, and what is special about it."""
    notes = []
    if vertex.is_source and operator.position == 0:
        notes.append("source")
    if operator.keyed:
        notes.append(f"keyed {operator.key_type}" if operator.key_type is not None else "keyed")
    if operator.uid != operator.name:
        notes.append(f"uid {operator.uid}")
    return f"{operator.name} ({', '.join(notes)})" if notes else operator.name


def _parallelism_text(vertex: VertexPlan) -> str:
    return f"parallelism {vertex.parallelism}, max {vertex.max_parallelism}"


def edge_text(edge: EdgePlan, channels: Counter[int]) -> str:
    """An edge in words: its partitioner, and how many channels it has."""
    where = "feedback: " if edge.is_feedback else "input 2: " if edge.target_input else ""
    return f"{_tag_text(edge.side_tag)}{where}{edge.partitioner.name}, {_count(channels[edge.index], 'channel')}"


def _tag_text(tag: str | None) -> str:
    return "" if tag is None else f"side output {tag}: "


def _count(number: int, singular: str, plural: str | None = None) -> str:
    return f"{number:,} {singular if number == 1 else plural or singular + 's'}"


def _mermaid_id(vertex: VertexPlan, position: int) -> str:
    return f"v{vertex.index}o{position}"


def _mermaid_text(text: str) -> str:
    """``text`` for use inside quotes: Mermaid writes special characters as ``#entity;``."""
    return text.replace("#", "#35;").replace('"', "#quot;").replace("<", "#lt;").replace(">", "#gt;")
