"""Jobs with loops whose output says of every trip round the loop whether it was counted never, once or twice.

A *token* is ``(id, left)``. Each trip takes one off ``left``; at 0 the token leaves. Trips are counted per key, and the
output is each count as it comes: ``(key, 1) .. (key, n)`` in any order of keys, whatever the order of tokens.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from engine.graph.job import Job
from engine.graph.stream import Stream
from engine.observe.cut_oracle import CutOracle
from engine.observe.trace_events import CheckpointCompleted, Instrument, RunStarted, TraceEvent
from engine.runtime.config import RunConfig
from engine.runtime.execution import JOB_MANAGER, Execution, ExecutionResult
from operators.basic import CollectedResults, KeyedProcessContext, KeyedProcessFunction
from operators.sources import SequenceSource

KEYS = 3
LONGEST = 9
AGAIN = "again"
MOST_EVENTS = 150_000

FEEDBACK: dict[str, Callable[[Stream], Stream]] = {
    "by default": lambda stream: stream,
    "rebalance": Stream.rebalance,
    "global": Stream.global_,
    "custom": lambda stream: stream.partition_custom(lambda token, subtasks: token[0] % subtasks),
    "keyed": lambda stream: stream.key_by(key_of),
}


def trips_of(number: int) -> int:
    """How often token ``number`` goes round: mostly few times."""
    return 1 + (number * 7 + number // 5) % LONGEST


def key_of(token: tuple[int, int]) -> int:
    return token[0] % KEYS


def expected_trips(tokens: int) -> Counter[tuple[int, int]]:
    sizes = Counter[int]()
    for number in range(tokens):
        sizes[number % KEYS] += trips_of(number)
    return Counter((key, count) for key, size in sizes.items() for count in range(1, size + 1))


class CountTrips(KeyedProcessFunction):
    """Counts in keyed state inside the loop, and sends tokens round through a side output."""

    def open(self, ctx: KeyedProcessContext) -> None:
        self.count = ctx.value_state("count", 0)

    def process_element(self, value: Any, ctx: KeyedProcessContext) -> Iterable[Any]:
        number, left = value
        count = self.count.get() + 1
        self.count.update(count)
        if left > 1:
            ctx.side_output(AGAIN, (number, left - 1))
        return [(key_of(value), count)]


def keyed_loop(tokens: Stream, feedback: str, *, head: int, body: int) -> Stream:
    loop = tokens.iterate(name="loop", parallelism=head)
    trips = loop.key_by(key_of).process(CountTrips, name="trip", parallelism=body)
    loop.close_with(FEEDBACK[feedback](trips.side_output(AGAIN)))
    return trips


def chained_loop(tokens: Stream, feedback: str, *, head: int, body: int) -> Stream:
    """The whole loop is one task, which feeds itself; the state is downstream of it."""
    loop = tokens.iterate(name="loop", parallelism=head)
    trip = loop.map(lambda token: (token[0], token[1] - 1), name="trip", parallelism=head)
    loop.close_with(FEEDBACK[feedback](trip.filter(lambda token: token[1] > 0, parallelism=head)))
    return counted(trip, body)


def long_loop(tokens: Stream, feedback: str, *, head: int, body: int) -> Stream:
    """The way round leads over three tasks, and a second input comes in on the way."""
    loop = tokens.iterate(name="loop", parallelism=head)
    trip = loop.rebalance().map(lambda token: (token[0], token[1] - 1), name="trip", parallelism=body, chain=False)
    more = trip.rescale().filter(lambda token: token[1] > 0, name="more", parallelism=head, chain=False)
    loop.close_with(FEEDBACK[feedback](more))
    return counted(trip, body)


def nested_loop(tokens: Stream, feedback: str, *, head: int, body: int) -> Stream:
    """A loop inside a loop: odd numbers of trips are made in the outer one, even ones in the inner one."""
    outer = tokens.iterate(name="loop", parallelism=head)
    inner = outer.rebalance().iterate(name="inner", parallelism=body)
    trip = inner.rebalance().map(lambda token: (token[0], token[1] - 1), name="trip", parallelism=body)
    more = trip.filter(lambda token: token[1] > 0, parallelism=body)
    inner.close_with(FEEDBACK[feedback](more.filter(lambda token: token[1] % 2 == 0, parallelism=body)))
    outer.close_with(more.filter(lambda token: token[1] % 2 == 1, parallelism=body).rebalance())
    return counted(trip, body)


def counted(trips: Stream, parallelism: int) -> Stream:
    """Trips of each key, counted downstream of the loop."""
    pairs = trips.key_by(key_of, value=lambda token: (key_of(token), 1))
    return pairs.reduce(lambda one, other: (one[0], one[1] + other[1]), name="count", parallelism=parallelism)


SHAPES: dict[str, Callable[..., Stream]] = {
    "keyed": keyed_loop,
    "chained": chained_loop,
    "long": long_loop,
    "nested": nested_loop,
}


@dataclass(frozen=True)
class Kill:
    """Kills a task ``after_ns`` after so many checkpoints have completed, or after the start of the run."""

    target: str
    checkpoints: int
    after_ns: int


class _Killer:
    """An instrument that strikes by the checkpoints it sees."""

    execution: Execution

    def __init__(self, kills: Iterable[Kill]) -> None:
        self._pending = list(kills)
        self._completed = 0

    def __call__(self, event: TraceEvent) -> None:
        """Count, and plan the kills that are due."""
        if isinstance(event, CheckpointCompleted):
            self._completed += 1
        if isinstance(event, (RunStarted, CheckpointCompleted)):
            for kill in [kill for kill in self._pending if kill.checkpoints <= self._completed]:
                self._pending.remove(kill)
                kernel, manager, at_ns = self.execution.kernel, self.execution.manager, event.time_ns + kill.after_ns
                if kill.target == JOB_MANAGER:
                    kernel.schedule(at_ns, "kill_master", manager, "killed")
                    continue
                named = [one for one in self.execution.plan.subtasks if one.name == kill.target]
                kernel.schedule(at_ns, "kill", manager, (tuple((one.vertex, one.subtask) for one in named), "killed"))


@dataclass
class LoopRun:
    """A job with a loop, made ready to run."""

    job: Job
    results: CollectedResults
    expected: Counter[tuple[int, int]]
    oracle: CutOracle = field(default_factory=CutOracle)

    def prepared(
        self, config: RunConfig, kills: Iterable[Kill] = (), instruments: Iterable[Instrument] = (), **surroundings: Any
    ) -> Execution:
        killer = _Killer(kills)
        execution = Execution(self.job.plan(), config, instruments=[self.oracle, killer, *instruments], **surroundings)
        killer.execution = execution
        return execution

    def ended(self, execution: Execution) -> ExecutionResult:
        """Run to whichever end, with the invariants checked now and then."""

        def step(_progress: Any) -> None:
            while execution.kernel.run(31) == 31 and not execution.kernel.stopped:
                execution.manager.validate()
                assert execution.kernel.executed < MOST_EVENTS, "the job comes to no end"

        execution._run_kernel = step  # type: ignore[method-assign, assignment]
        return execution.run()

    def checked(self, execution: Execution) -> ExecutionResult:
        """The same, for a job that is not meant to fail."""
        return self.ended(execution).raise_on_failure()

    def run(
        self, config: RunConfig, kills: Iterable[Kill] = (), instruments: Iterable[Instrument] = ()
    ) -> ExecutionResult:
        return self.checked(self.prepared(config, kills, instruments))

    @property
    def output(self) -> Counter[Any]:
        return Counter(self.results.records)


def loop_job(
    shape: str = "keyed",
    *,
    tokens: int = 30,
    feedback: str = "keyed",
    sources: int = 1,
    head: int = 2,
    body: int = 2,
    rebalanced: bool = True,
    results: CollectedResults | None = None,
) -> LoopRun:
    """A job of this shape; ``sources`` of them share the tokens, so they end at different times. ``results``: those of
    the run whose snapshot it goes on from."""
    job, results = Job("loop"), CollectedResults() if results is None else results
    streams, first = [], 0
    for number in range(sources):
        last = tokens if number == sources - 1 else first + (tokens - first) // 3
        source = SequenceSource(first, last, splits=2)
        streams.append(job.source(source, name=f"tokens {number}", parallelism=1 + number % 2))
        first = last
    merged = streams[0].union(*streams[1:]) if len(streams) > 1 else streams[0]
    prepared = merged.map(lambda number: (number, trips_of(number)), name="prepare", parallelism=2)
    trips = SHAPES[shape](prepared.rebalance() if rebalanced else prepared, feedback, head=head, body=body)
    # Neither edges nor chains depend on the parallelism, so that a snapshot fits any.
    trips.rebalance().collect(results, name="out", parallelism=1)
    return LoopRun(job, results, expected_trips(tokens))
