"""Draws a plan as a picture that stands alone: a box for each vertex, an arrow for each edge. It takes the colour of
the text around it, so it suits light and dark notebooks. The same plan, the same bytes."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from engine.graph.explain import channel_counts, edge_text, operator_text
from engine.graph.plan import ExecutionPlan, VertexPlan

_LINE, _PAD, _BETWEEN = 17, 10, 22
_PER_CHARACTER, _LONGEST = 6.8, 34


def explain_svg(plan: ExecutionPlan) -> str:
    """The picture as one ``<svg>`` element."""
    texts = [_texts(vertex) for vertex in plan.vertices]
    depth = _layers(plan)
    widths = [0] * (max(depth) + 1)
    for vertex, layer in enumerate(depth):
        longest = max(len(text) for text in texts[vertex])
        widths[layer] = max(widths[layer], round(2 * _PAD + _PER_CHARACTER * longest))
    channels = channel_counts(plan)
    labels = [edge_text(edge, channels) for edge in plan.edges]
    gap = round(40 + 6.2 * max(map(len, labels), default=0))
    lefts = [8 + sum(widths[:layer]) + layer * gap for layer in range(len(widths))]
    filled = [8] * len(widths)
    places: list[tuple[int, int, int, int]] = []
    for vertex, layer in enumerate(depth):
        height = 2 * _PAD + _LINE * len(texts[vertex])
        places.append((lefts[layer], filled[layer], widths[layer], height))
        filled[layer] += height + _BETWEEN
    wide, tall = lefts[-1] + widths[-1] + 8, max(filled) + 12
    parts = [*_arrows(plan, labels, places), *(_box(*each) for each in zip(texts, places, strict=True))]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{wide}" height="{tall}" viewBox="0 0 {wide} {tall}" role="img"'
        f' aria-label="{escape(f"The plan of job {plan.job_name}")}" fill="currentColor" stroke="none"'
        f' font-family="system-ui, sans-serif" font-size="12">{"".join(parts)}</svg>'
    )


def _texts(vertex: VertexPlan) -> list[str]:
    lines = [*(operator_text(vertex, operator) for operator in vertex.operators), f"parallelism {vertex.parallelism}"]
    return [line if len(line) <= _LONGEST else f"{line[: _LONGEST - 1]}…" for line in lines]


def _layers(plan: ExecutionPlan) -> list[int]:
    """The layer of each vertex: one after the last of those that send to it."""
    depth = [0] * len(plan.vertices)
    # Vertices are in topological order, but for edges that lead back.
    for edge in sorted(plan.edges, key=lambda edge: edge.source_vertex):
        if not edge.is_feedback:
            depth[edge.target_vertex] = max(depth[edge.target_vertex], depth[edge.source_vertex] + 1)
    return depth


def _box(texts: Sequence[str], place: tuple[int, int, int, int]) -> str:
    left, top, width, height = place
    lines = []
    for number, text in enumerate(texts):
        faint = ' opacity="0.65"' if number == len(texts) - 1 else ""
        y = top + _PAD + _LINE * (number + 0.75)
        lines.append(f'<text x="{left + _PAD}" y="{y:g}"{faint}>{escape(text)}</text>')
    frame = f'<rect x="{left}" y="{top}" width="{width}" height="{height}" rx="6" fill="none" stroke="currentColor"/>'
    return frame + "".join(lines)


def _arrows(plan: ExecutionPlan, labels: Sequence[str], places: Sequence[tuple[int, int, int, int]]) -> list[str]:
    arrows = []
    for edge, label in zip(plan.edges, labels, strict=True):
        left, top, width, height = places[edge.source_vertex]
        x1, y1 = left + width, top + height // 2
        left, top, width, height = places[edge.target_vertex]
        x2, y2 = left, top + height // 2
        # An edge that leads back goes below the boxes.
        bend, drop = ((x2 - x1) // 2, 0) if x2 > x1 else (60, 70)
        curve = f"M{x1},{y1} C{x1 + bend},{y1 + drop} {x2 - bend},{y2 + drop} {x2 - 7},{y2}"
        style = 'fill="none" stroke="currentColor"' + (' stroke-dasharray="4 3"' if edge.is_feedback else "")
        arrows.append(
            f'<path d="{curve}" {style}/><path d="M{x2},{y2} l-8,-4 v8 z"/>'
            f'<text x="{(x1 + x2) // 2}" y="{(y1 + y2) // 2 + drop - 6}" text-anchor="middle" font-size="11"'
            f' opacity="0.75">{escape(label)}</text>'
        )
    return arrows
