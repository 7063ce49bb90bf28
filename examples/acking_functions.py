"""Functions that anchor, acknowledge and fail records themselves, in mode acking::

    python -m examples.acking_functions

1. One function after a source: three control messages for each record.
2. A function emits two records as one, anchored to both: the tree of each has the tuple.
3. The same job, once anchored and once not, loses a task: which records come again?
4. A function fails a record; the source is called back, and sends it again.
"""

from __future__ import annotations

from typing import Any

from engine import (
    AckingContext,
    AckingFunction,
    CollectedResults,
    CollectSink,
    ExecutionResult,
    Job,
    SequenceSource,
    SpoutSource,
    TrackedRecord,
)


class Count(AckingFunction):
    """Handles a record and emits nothing."""

    def process_element(self, record: TrackedRecord, ctx: AckingContext) -> None:
        ctx.ack(record)


class Pairs(AckingFunction):
    """Emits two records as one. The first waits here, and is not acknowledged meanwhile."""

    def open(self, ctx: AckingContext) -> None:
        self.first: TrackedRecord | None = None

    def process_element(self, record: TrackedRecord, ctx: AckingContext) -> None:
        if self.first is None:
            self.first = record
            return
        ctx.emit((self.first.value, record.value), anchors=[self.first, record])
        ctx.ack(self.first)
        ctx.ack(record)
        self.first = None


class PassOn(AckingFunction):
    """Emits each record, anchored or not."""

    def __init__(self, anchored: bool) -> None:
        self.anchored = anchored

    def process_element(self, record: TrackedRecord, ctx: AckingContext) -> None:
        if self.anchored:
            ctx.emit(record.value)
        else:
            ctx.emit(record.value, anchors=())
        ctx.ack(record)


class SecondTime(AckingFunction):
    """Fails every fifth record when it comes for the first time."""

    def open(self, ctx: AckingContext) -> None:
        self.seen: set[int] = set()

    def process_element(self, record: TrackedRecord, ctx: AckingContext) -> None:
        if record.value % 5 == 0 and record.value not in self.seen:
            self.seen.add(record.value)
            ctx.fail(record)
            return
        ctx.emit(record.value)
        ctx.ack(record)


def job_with(function: AckingFunction, results: CollectedResults, source: Any = None) -> Job:
    """numbers -> function -> out; each arrow is a channel."""
    made = Job("acking-functions")
    numbers = made.source(source or SequenceSource(0, 100), name="numbers")
    handled = numbers.rebalance().process(function, name="function", chain=False)
    return handled.sink(CollectSink(results), name="out", chain=False)


def run(function: AckingFunction, results: CollectedResults, kills: tuple[str, ...] = (), source: Any = None) -> Any:
    """Run the job with acking; links take 1 us, records time out after 1 to 2 ms."""
    result = job_with(function, results, source).run(
        mode="acking", acking={"timeout": "1ms"}, cost={"link_latency": "1us"}, kills=list(kills)
    )
    return result.execution


def told(result: ExecutionResult) -> str:
    """The data and control messages of a run."""
    acking = result.acking
    assert acking is not None
    control = ", ".join(f"{count} {kind}" for kind, count in acking.control.items() if count)
    return f"{acking.data} data messages; control: {control}"


def main() -> None:
    results = CollectedResults(transactional=False)
    print("1. one function:", told(run(Count(), results)))

    results = CollectedResults(transactional=False)
    print("2. two anchors: ", told(run(Pairs(), results)))
    print("   pairs:", len(results.records))

    print("3. 'out' dies with records on its channel:")
    for anchored in (True, False):
        results = CollectedResults(transactional=False)
        acking = run(PassOn(anchored), results, ("out[0]@50us",)).acking
        name = "anchored:  " if anchored else "unanchored:"
        lost = 100 - len(set(results.records))
        print(f"   {name} {acking.lost} tuples lost, {acking.replayed} records sent again, {lost} missing in the end")

    failed: list[int] = []
    results = CollectedResults(transactional=False)
    source = SpoutSource(SequenceSource(0, 100), fail=lambda message: failed.append(message.value), max_pending=10)
    acking = run(SecondTime(), results, source=source).acking
    print(f"4. {len(failed)} records failed and {acking.replayed} sent again; {len(set(results.records))} came out")
    print("  ", {name: one.as_dict() for name, one in acking.spouts.items()})


if __name__ == "__main__":
    main()
