"""The opinion: the outputs of a job in several orders, and the conclusion from them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from engine.explore.opinion.elements import Order, Record
from engine.explore.opinion.evaluator import Evaluated, evaluate, read_inputs, sink_named
from engine.explore.opinion.output_comparison import compare_outputs
from engine.explore.opinion.source_elements import Ranges
from engine.graph.plan import ExecutionPlan
from state_backends.files import FileSystem

ORDERS: tuple[Order, ...] = (
    Order("one channel after the other"),
    Order("the last channel first, watermarks only where they must be", last=True, every=0),
    Order("channels in turn", in_turn=True),
    Order("everything read first, the last channel first", deep=False, last=True, every=3),
    Order("mixed up", mixed=20_011),
    Order("mixed up differently, watermarks only where they must be", mixed=977, every=0),
)
"""They vary which of several waiting channels is next, how far ahead sources are, and when watermarks come."""

Rows = Mapping[str, Sequence[str]]


@dataclass(frozen=True, slots=True)
class Opinion:
    """``endings``: the different outputs, the first one first, by ``uid`` or ``uid/bucket``; ``unknown``: by uid, why
    the output of a sink is unknown; ``dependent``: how another order differed, ``None`` when all agree."""

    endings: tuple[dict[str, list[str]], ...]
    unknown: Mapping[str, str] = field(default_factory=dict)
    dependent: str | None = None


def second_opinion(
    plans: Sequence[ExecutionPlan],
    files: FileSystem,
    sinks: Sequence[str],
    dropped: Mapping[str, Ranges] | None = None,
    orders: Sequence[Order] = ORDERS,
) -> Opinion:
    """The output that the job commits, in each order.

    ``plans``    the job as it is, and with other parallelisms in which it must be right too;
    ``files``    the file system that its sources read;
    ``sinks``    the uids of the sinks whose output is requested;
    ``dropped``  records that are left out, by ``uid/split``.

    Raises any exception of a user function.
    """
    found: list[tuple[Order, Evaluated]] = []
    for number, plan in enumerate(plans):
        inputs, unknown = read_inputs(plan, files, dropped or {})
        for order in orders if not number else orders[2:5]:
            found.append((order, evaluate(plan, inputs, unknown, order)))
    reasons: dict[str, str] = {}
    for _, one in found:
        reasons.update((uid, reason) for uid, reason in one.unknown.items() if uid in sinks)
    endings: list[dict[str, list[str]]] = []
    dependent = None
    for order, one in found:
        rows = _output(one, [uid for uid in sinks if uid not in reasons])
        if all(not compare_outputs(ending, rows).equal for ending in endings):
            if endings and dependent is None:
                difference = compare_outputs(endings[0], rows).describe(1).replace("\n", ";")
                dependent = f"{found[0][0].name}, or {order.name}: {difference}"
            endings.append(rows)
    return Opinion(tuple(endings), reasons, dependent)


def read_records(
    plan: ExecutionPlan, files: FileSystem, dropped: Mapping[str, Ranges] | None = None
) -> dict[str, list[Any]]:
    """By uid of a source: its records, split after split. A source that cannot be read here has no entry."""
    inputs, _ = read_inputs(plan, files, dropped or {})
    return {
        plan.vertices[vertex].operators[0].uid: [
            item.value for items in read.splits.values() for item in items if isinstance(item, Record)
        ]
        for (vertex, _), read in inputs.items()
    }


def text_of(plan: ExecutionPlan, uid: str, record: Any) -> str:
    """A record as readers of a sink see it."""
    return sink_named(plan, uid).text_of(record)


def _output(found: Evaluated, sinks: Sequence[str]) -> dict[str, list[str]]:
    rows: dict[str, list[str]] = {}
    for uid in sinks:
        buckets = found.rows.get(uid, {})
        rows.update((f"{uid}/{bucket}" if bucket else uid, list(lines)) for bucket, lines in buckets.items())
    return rows
