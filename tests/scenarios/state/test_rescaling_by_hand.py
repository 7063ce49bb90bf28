"""Going on with other numbers of subtasks, one case at a time: each kind of edge with records in flight, timers, the
number of key groups, and what is refused."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from engine.checkpoint.restore import NoRestart
from engine.elements.errors import JobChangedError
from engine.graph.job import Job
from engine.graph.stream import Stream
from engine.runtime.config import CheckpointInterval, CostModel, RunConfig
from engine.runtime.execution import Execution
from engine.runtime.kernel import START_NS
from engine.runtime.storage import SavepointRestore
from operators.basic import CollectedResults, KeyedProcessContext, KeyedProcessFunction
from operators.sources import CollectionSource, Pause, SequenceSource
from state_backends.files import MemoryFileSystem
from state_backends.snapshots import CheckpointStorage
from tests.runtime.support import MS, US

RECORDS, KEYS = 120, 7
STORAGE = "/checkpoints"

SPREADS: dict[str, Callable[[Stream], Stream]] = {
    "hash": lambda stream: stream.key_by(lambda number: number % KEYS),
    "rebalance": Stream.rebalance,
    "global": Stream.global_,
    "custom": lambda stream: stream.partition_custom(lambda number, subtasks: number * 3 % subtasks),
    "by default": lambda stream: stream,
}


@dataclass(frozen=True)
class Shape:
    """``numbers`` to ``slow`` over the edge in question."""

    spread: str = "rebalance"
    senders: int = 2
    receivers: int = 3
    max_parallelism: int | None = None
    chain: bool = False

    def job(self, results: CollectedResults) -> Job:
        """Each number is committed once; keyed, with its place among those of its key."""
        job = Job("moved", max_parallelism=self.max_parallelism)
        numbers = job.source(SequenceSource(0, RECORDS, splits=4), name="numbers", parallelism=self.senders)
        spread = SPREADS[self.spread](numbers)
        options: dict[str, Any] = {"name": "slow", "parallelism": self.receivers, "chain": self.chain}
        if self.spread == "hash":
            slow = spread.process(Numbered, **options)
        else:
            slow = spread.map(lambda number: (number, 0), **options)
        return slow.collect(results, name="out", parallelism=self.receivers)


class Numbered(KeyedProcessFunction):
    """The place of a number among those of its key."""

    def open(self, ctx: KeyedProcessContext) -> None:
        self.count = ctx.value_state("count", 0)

    def process_element(self, value: int, ctx: KeyedProcessContext) -> list[tuple[int, int]]:
        count = self.count.get() + 1
        self.count.update(count)
        return [(ctx.current_key, count)]


def committed_once(shape: Shape) -> Counter[tuple[int, int]]:
    if shape.spread != "hash":
        return Counter((number, 0) for number in range(RECORDS))
    sizes = Counter(number % KEYS for number in range(RECORDS))
    return Counter((key, count) for key, size in sizes.items() for count in range(1, size + 1))


def execution(shape: Shape, results: CollectedResults, files: MemoryFileSystem, **settings: Any) -> Execution:
    """A run whose receivers are slower than its senders; with ``restore=True`` from the newest checkpoint."""
    restore = settings.pop("restore", False)
    config: dict[str, Any] = {
        "mode": "unaligned",
        "batch_size": 1,
        "channel_capacity": 3,
        "output_capacity": 3,
        "checkpoint_interval": CheckpointInterval(time_ns=20 * US),
        "restart": NoRestart(),
        "cost": CostModel(record_ns=4 * US),
    }
    return Execution(
        shape.job(results).plan(),
        RunConfig(**{**config, **settings}),
        storage=CheckpointStorage(files, STORAGE, "moved"),
        file_system=files,
        restore=restore,
        incarnation=2 if restore else 1,
    )


def stopped_with_records_in_flight(shape: Shape, results: CollectedResults) -> MemoryFileSystem:
    """Killed for good in the middle; its newest checkpoint holds records in flight on the edge in question."""
    files = MemoryFileSystem()
    made = execution(shape, results, files)
    made.kill("slow", 70 * US)
    assert made.run().state == "failed"
    storage = CheckpointStorage(files, STORAGE, "moved")
    newest = storage.read_metadata(max(storage.list_checkpoints()))
    parts = [part for operator in newest.operators for part in operator.subtasks.values()]
    names = [
        piece.channel.edge
        for part in parts
        for handle in (part.input_channels, part.output_channels)
        if handle is not None
        for piece in handle.pieces
    ]
    assert any(name.startswith("numbers>>slow") for name in names)
    return files


@pytest.mark.parametrize("mode", ["unaligned", "aligned"])
@pytest.mark.parametrize(("senders", "receivers"), [(2, 3), (2, 1), (1, 5), (4, 4), (3, 8)])
@pytest.mark.parametrize("spread", ["hash", "rebalance", "global", "custom"])
def test_records_in_flight_move_with_the_parallelism(spread: str, senders: int, receivers: int, mode: str) -> None:
    """Up to as many subtasks as there are key groups and down to one, of either end, into the same mode or another."""
    results, before = CollectedResults(), Shape(spread, max_parallelism=8)
    files = stopped_with_records_in_flight(before, results)
    after = Shape(spread, senders, receivers, max_parallelism=8)

    result = execution(after, results, files, restore=True, mode=mode).run().raise_on_failure()

    assert result.restores[0].checkpoint_id is not None
    assert Counter(results.records) == committed_once(after)


# --- key groups -------------------------------------------------------------------------------------------------------


def test_the_states_number_of_key_groups_wins_over_one_that_nobody_asked_for() -> None:
    """16 in the first job; the second one leaves it open and would get 128: keys and records in flight go by 16."""
    results = CollectedResults()
    files = stopped_with_records_in_flight(Shape("hash", max_parallelism=16), results)
    after = Shape("hash", 2, 5)

    made = execution(after, results, files, restore=True)
    made.run().raise_on_failure()

    groups = {vertex.name.split(" ->")[0]: vertex.max_parallelism for vertex in made.manager.plan.vertices}
    assert groups["slow"] == 16
    assert Counter(results.records) == committed_once(after)


@pytest.mark.parametrize(
    ("after", "told"),
    [
        (Shape("hash", max_parallelism=32), "(?s)max parallelism 32.*written with 16.*set max_parallelism to 16"),
        (Shape("hash", receivers=17), "(?s)slow.*17.*16"),
    ],
)
def test_another_number_of_key_groups_is_refused(after: Shape, told: str) -> None:
    """One that was asked for, and more subtasks than there are groups: the error names both numbers."""
    files = stopped_with_records_in_flight(Shape("hash", max_parallelism=16), CollectedResults())

    with pytest.raises(JobChangedError, match=told):
        execution(after, CollectedResults(), files, restore=True).run().raise_on_failure()


# --- what is refused --------------------------------------------------------------------------------------------------


def test_records_of_an_edge_that_has_become_forward_are_refused() -> None:
    """With equal parallelisms no pair owns such a record; the error names the edge and the way out."""
    files = stopped_with_records_in_flight(Shape("by default", 2, 3), CollectedResults())

    with pytest.raises(JobChangedError, match=r"(?s)numbers>>slow#0.*savepoint"):
        execution(Shape("by default", 2, 2), CollectedResults(), files, restore=True).run().raise_on_failure()


def test_records_of_an_edge_that_lies_inside_a_chain_are_refused() -> None:
    """The edge no longer exists; the user must ask for dropping the records."""
    files = stopped_with_records_in_flight(Shape("by default", 2, 3), CollectedResults())
    chained = Shape("by default", 2, 2, chain=True)

    with pytest.raises(JobChangedError, match=r"(?s)numbers>>slow#0.*--allow-non-restored-state"):
        execution(chained, CollectedResults(), files, restore=True).run().raise_on_failure()
    allowed = execution(chained, CollectedResults(), files, restore=True, allow_non_restored_state=True).run()
    assert allowed.state == "finished"
    assert any("records in flight on numbers>>slow#0" in note for note in allowed.notes)


@pytest.mark.parametrize("after", [Shape("by default", 2, 2), Shape("by default", 2, 2, chain=True)])
def test_from_a_savepoint_both_work(after: Shape) -> None:
    """A savepoint does not hold records in flight, so the edge may change in any way."""
    files, results = MemoryFileSystem(), CollectedResults()
    first = execution(Shape("by default", 2, 3), results, files, checkpoint_interval=None)
    first.savepoint(30 * US, "/savepoints")
    first.kill("slow", 90 * US)
    path = first.run().savepoints[0].path
    assert path is not None

    second = Execution(
        after.job(results).plan(),
        RunConfig(mode="unaligned", cost=CostModel(record_ns=4 * US)),
        file_system=files,
        restore_from=SavepointRestore(path),
    )
    second.run().raise_on_failure()

    assert Counter(results.records) == committed_once(after)


# --- timers -----------------------------------------------------------------------------------------------------------

GROUPS = 6
DUE_MS = START_NS // MS + 8


class Later(KeyedProcessFunction):
    """Passes every record on when the clock shows ``DUE_MS``, all of a key together."""

    def open(self, ctx: KeyedProcessContext) -> None:
        self.held = ctx.list_state("held")

    def process_element(self, value: int, ctx: KeyedProcessContext) -> None:
        self.held.add(value)
        ctx.register_processing_time_timer(DUE_MS)

    def on_timer(self, timestamp_ms: int, ctx: KeyedProcessContext) -> list[tuple[int, int]]:
        held = list(self.held.get())
        self.held.clear()
        return [(value, timestamp_ms) for value in held]


def reminders(parallelism: int, results: CollectedResults) -> Job:
    """Thirty records at once, then nothing for a while."""
    job = Job("reminders", max_parallelism=GROUPS)
    numbers = job.source(CollectionSource([*range(30), Pause(20)]), name="numbers")
    held = numbers.key_by(lambda number: number % 11).process(Later, name="later", parallelism=parallelism)
    return held.collect(results, name="out")


@pytest.mark.parametrize("parallelism", [1, 2, 5, GROUPS])
def test_processing_time_timers_move_with_their_keys(parallelism: int) -> None:
    """They fire in the subtask that has the key now, at the time they were set for, once."""
    files, results = MemoryFileSystem(), CollectedResults()
    first = Execution(reminders(3, results).plan(), RunConfig(checkpoint_interval=None), file_system=files)
    first.savepoint(3 * MS, "/savepoints")
    first.kill("later", 5 * MS)
    first.kill("job manager", 5 * MS)
    path = first.run().savepoints[0].path
    assert path is not None

    results = CollectedResults()
    second = Execution(
        reminders(parallelism, results).plan(), RunConfig(), file_system=files, restore_from=SavepointRestore(path)
    )
    second.run().raise_on_failure()

    assert Counter(results.records) == Counter((number, DUE_MS) for number in range(30))
