"""Which towns can be reached from where: a job with a loop, under every mode, crashed and compared with a search.

Roads and starting points come in as a stream, in any order. Each town keeps in keyed state the roads that lead away
from it and the starting points it was reached from. When a new starting point reaches a town, the town sends it through
the loop to the towns at the ends of its roads. Each does so only once, so the loop comes to rest. Run it with::

    python -m examples.iterations
    weir explore examples/iterations.py --time 60s    # thousands of ways to go wrong, on a smaller map
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from engine import CollectedResults, ExecutionResult, Job
from engine.observe.cut_oracle import CutOracle
from engine.observe.trace_events import RecordsCaptured, TraceEvent
from operators.basic import KeyedProcessContext, KeyedProcessFunction
from operators.sources import CollectionSource

TOWNS, ROADS, STARTS = 400, 900, 12
MODES = ("aligned", "aligned-timeout", "unaligned", "at-least-once")

Event = tuple[str, int, int]
"""``("road", from, to)`` or ``("reached", town, starting point)``."""


SCENARIO = {"params": {"towns": "12", "roads": "27"}}


def events(towns: int = TOWNS, roads: int = ROADS) -> Iterator[Event]:
    """The same map every time: roads between pseudo-random towns, and a starting point now and then."""
    number = 1
    for event in range(roads):
        ends = []
        for _ in range(2):
            number = number * 48_271 % 2_147_483_647
            ends.append(number % towns)
        yield ("road", ends[0], ends[1])
        if event % (roads // STARTS) == 0:
            yield ("reached", ends[0], ends[0])


class Town(KeyedProcessFunction):
    """One town. Emits ``(starting point, town)`` once, and tells its neighbours through the side output ``on``."""

    def open(self, ctx: KeyedProcessContext) -> None:
        """Declare the state of a town."""
        self.roads = ctx.map_state("roads")
        self.reached_from = ctx.map_state("reached from")

    def process_element(self, value: Event, ctx: KeyedProcessContext) -> Iterable[Any]:
        """A road begins here, or a starting point has reached this town."""
        what, town, other = value
        if what == "road":
            self.roads.put(other, True)
            for start in list(self.reached_from.keys()):
                ctx.side_output("on", ("reached", other, start))
            return ()
        if self.reached_from.contains(other):
            return ()
        self.reached_from.put(other, True)
        for neighbour in list(self.roads.keys()):
            ctx.side_output("on", ("reached", neighbour, other))
        return ((other, town),)


def job(pairs: CollectedResults | None = None, towns: str = str(TOWNS), roads: str = str(ROADS)) -> Job:
    """The loop: each new ``reached`` event is led back, keyed by town, to meet the town's roads."""
    made = Job("towns", parallelism=2, max_parallelism=64)
    read = made.source(CollectionSource(list(events(int(towns), int(roads)))), name="map")
    travellers = read.rebalance().iterate(name="travellers")
    reached = travellers.key_by(lambda event: event[1]).process(Town, name="towns")
    travellers.close_with(reached.side_output("on").key_by(lambda event: event[1]))
    reached.collect(CollectedResults() if pairs is None else pairs, name="out")
    return made


def search() -> set[tuple[int, int]]:
    """The same pairs, found by following the roads of the whole map; it uses no code of the job."""
    roads: dict[int, set[int]] = {}
    starts = set()
    for what, one, other in events():
        if what == "road":
            roads.setdefault(one, set()).add(other)
        else:
            starts.add(one)
    found = set()
    for start in starts:
        pending = [start]
        while pending:
            town = pending.pop()
            if (start, town) not in found:
                found.add((start, town))
                pending += roads.get(town, ())
    return found


def run(mode: str, kills: Sequence[str] = ()) -> tuple[ExecutionResult, CutOracle, Counter[Any], int]:
    """One run: its result, whether its cuts were consistent, its output, and how many records in the loop became part
    of its checkpoints."""
    pairs, oracle, logged = CollectedResults(), CutOracle(), 0

    def hear(event: TraceEvent) -> None:
        nonlocal logged
        if isinstance(event, RecordsCaptured) and event.side == "input":
            logged += event.records

    result = job(pairs).run(
        mode=mode,
        seed=1,
        batch_size=8,
        checkpoint_interval="400us",
        aligned_timeout="20us" if mode == "aligned-timeout" else None,
        cost={"record": "1us", "link_latency": "5us"},
        kills=kills,
        instruments=[oracle, hear],
    ).execution
    return result, oracle, Counter(pairs.records), logged


def main() -> None:
    """Print the comparison."""
    print(job().explain())
    expected = search()
    print(f"{ROADS:,} roads between {TOWNS:,} towns, {STARTS} starting points: a search finds {len(expected):,} pairs.")
    print("The job finds them on the way round; towns[1] is killed at 1.3 ms.\n")
    print(f"{'mode':<17}{'checkpoints':>11}{'records stored':>16}    after a restore from checkpoint")
    for mode in MODES:
        result, oracle, pairs, logged = run(mode, ["towns[1]@1300us"])
        assert oracle.held or mode == "at-least-once"
        twice = sum(pairs.values()) - len(pairs)
        verdict = "the pairs of the search" if pairs.keys() == expected else "OTHER PAIRS THAN THE SEARCH"
        told = f"{result.restores[-1].checkpoint_id}: {verdict}, {'each once' if not twice else f'{twice:,} twice'}"
        print(f"{mode:<17}{result.checkpoints.completed:>11}{logged:>16,}    {told}")


if __name__ == "__main__":
    main()
