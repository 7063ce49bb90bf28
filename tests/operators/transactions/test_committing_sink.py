"""Sinks in several operators inside real jobs: in every mode, killed at any time, resumed at another parallelism."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

from engine.checkpoint.restore import FixedDelayRestart, NoRestart
from engine.elements.batch import Batch
from engine.elements.errors import ConfigurationError, UserFunctionError
from engine.elements.operator import Operator, OperatorContext
from engine.graph.job import Job
from engine.runtime.config import CostModel
from operators.sources import SequenceSource
from operators.transactions import (
    END_OF_INPUT,
    CommitRequest,
    CommitRules,
    Committer,
    CommittingSink,
    SinkPart,
    SinkWriter,
    WriteError,
    messages,
    summary,
)
from operators.transactions.committables import committable
from operators.transactions.committer import CommitterOperator, GlobalCommitterOperator
from operators.transactions.committing_sink import WriterOperator
from state_backends.files import MemoryFileSystem
from tests.cases import crossed
from tests.operators.harness import Harness
from tests.runtime.support import US, every, execution, run

RECORDS = 60
MODES = ["aligned", "unaligned", "aligned-timeout", "at-least-once"]


class World:
    """The state that outlives dead jobs. Rows are named by the writer that handed them out, so that repeated commits
    show nothing new; ``listed`` is what the global committer has seen, in order."""

    def __init__(self) -> None:
        self.rows: dict[tuple[Any, ...], list[int]] = {}
        self.listed: list[list[Any]] = []
        self.listed_names: dict[tuple[Any, ...], None] = {}

    @property
    def visible(self) -> Counter[int]:
        return Counter(row for rows in self.rows.values() for row in rows)


class Rows(CommittingSink):
    """Hands out the rows of each checkpoint in pieces of at most three."""

    name = "rows"

    def __init__(self, world: World) -> None:
        self.world = world

    def create_writer(self, context: OperatorContext, restored: list[Any]) -> SinkWriter:
        return _RowsWriter(context)


class _RowsWriter(SinkWriter):
    def __init__(self, context: OperatorContext) -> None:
        self._stem = (context.incarnation, context.attempt, context.subtask)
        self._handed_out = 0
        self._rows: list[int] = []
        self.closed = 0

    def write(self, batch: Batch) -> None:
        if 13_000 in batch.values:
            raise WriteError("unlucky number", 13_000, ValueError("not this one"))
        self._rows += batch.values

    def prepare_commit(self, end_of_input: bool) -> list[Any]:
        pieces = [self._rows[at : at + 3] for at in range(0, len(self._rows), 3)]
        self._rows = []
        first, self._handed_out = self._handed_out, self._handed_out + len(pieces)
        return [((*self._stem, number), rows) for number, rows in enumerate(pieces, start=first)]

    def close(self) -> None:
        self.closed += 1


class _Publishing:
    def __init__(self, world: World) -> None:
        self._world = world

    def commit(self, requests: Sequence[CommitRequest]) -> None:
        for request in requests:
            name, rows = request.committable
            if tuple(name) in self._world.rows:
                request.signal_already_committed()
            self._world.rows[tuple(name)] = list(rows)


class _Listing:
    """Refuses to list rows that are not visible yet."""

    def __init__(self, world: World, *, needs_rows: bool) -> None:
        self._world = world
        self._needs_rows = needs_rows

    def commit(self, requests: Sequence[CommitRequest]) -> None:
        world = self._world
        names = [tuple(request.committable[0]) for request in requests]
        assert not self._needs_rows or all(name in world.rows for name in names)
        world.listed.append(names)
        world.listed_names.update(dict.fromkeys(names))
        if not self._needs_rows:
            world.rows.update({tuple(request.committable[0]): request.committable[1] for request in requests})


class Committing(Rows):
    def create_committer(self, context: OperatorContext) -> Committer:
        return _Publishing(self.world)


class Listed(Committing):
    """With a global committer after the committers."""

    def create_global_committer(self, context: OperatorContext) -> Committer:
        return _Listing(self.world, needs_rows=True)


class OnlyGlobal(Rows):
    """With a global committer directly after the writers."""

    def create_global_committer(self, context: OperatorContext) -> Committer:
        return _Listing(self.world, needs_rows=False)


class Shuffled(Committing):
    """With an operator in between, on edges where barriers may overtake committables."""

    def add_pre_commit(self, stream: Any, options: Any) -> Any:
        passing = stream.partition_custom(_by_subtask).via(SinkPart("passing", _Passing), name="passing")
        return passing.partition_custom(_by_subtask)


def _by_subtask(message: Any, subtasks: int) -> int:
    return int(message[2]) % subtasks


class _Passing(Operator):
    def process_batch(self, batch: Batch) -> None:
        self.output.emit(batch)


SINKS: dict[str, type[Rows]] = {
    "committer": Committing, "listed": Listed, "only global": OnlyGlobal, "shuffled": Shuffled,
}  # fmt: skip


def rows_job(sink: Any, parallelism: int = 2, **options: Any) -> Job:
    job = Job("rows", parallelism=parallelism)
    numbers = job.source(SequenceSource(0, RECORDS, splits=4), name="numbers", uid="numbers")
    return numbers.rebalance().map(lambda number: number, name="same", uid="same").sink(sink, uid="out", **options)


@pytest.mark.parametrize("mode", [*MODES, "none"])
@pytest.mark.parametrize("kind", SINKS)
def test_an_undisturbed_job_commits_everything_once(kind: str, mode: str) -> None:
    """With and without checkpoints, with every kind of operators after the writers."""
    world = World()
    settings = {} if mode == "none" else {"checkpoint_interval": every(records=10)}
    run(rows_job(SINKS[kind](world)), mode=mode, **settings)

    assert world.visible == Counter(range(RECORDS))
    if kind == "listed":
        assert world.listed_names.keys() == world.rows.keys()


@crossed(quick=2, mode=MODES, kind=SINKS, chain=[True, False])
def test_a_killed_job_commits_everything_once(kind: str, mode: str, chain: bool) -> None:
    """Each operator is killed in turn at many instants; slow links keep committables in flight for long."""
    tolerant = mode == "at-least-once"
    operators = ["numbers", "same", "rows", "rows-committer", "rows-global-committer"]
    cost = CostModel(record_ns=200, link_latency_ns=3_000, storage_latency_ns=4_000)
    for number, at_us in enumerate(range(3, 130, 25)):
        world = World()
        job = rows_job(SINKS[kind](world), chain=chain)
        known = {operator.name: vertex.name for vertex in job.plan().vertices for operator in vertex.operators}
        targets = [name for name in operators if name in known]
        kills = [(targets[number % len(targets)], at_us * US), (targets[-1], (at_us + 9) * US)]
        made = execution(
            job, kills=kills, mode=mode, checkpoint_interval=every(records=7), cost=cost, batch_size=4,
            restart=FixedDelayRestart(5, 1_000), channel_capacity=8, seed=str(number), inline_state_bytes=0,
        )  # fmt: skip
        made.run().raise_on_failure()

        seen = world.visible
        assert not Counter(range(RECORDS)) - seen
        assert tolerant or seen == Counter(range(RECORDS)), (kills, seen - Counter(range(RECORDS)))
        if kind == "listed":
            assert world.listed_names.keys() == world.rows.keys()


@pytest.mark.parametrize("kind", ["committer", "listed", "only global"])
@pytest.mark.parametrize(("before", "after"), [(1, 3), (3, 1), (2, 3)])
def test_another_parallelism_commits_what_was_pending(kind: str, before: int, after: int) -> None:
    """Killed and resumed: the subtask that gets the state commits."""
    for at_us in range(4, 19, 3):
        world, files = World(), MemoryFileSystem()
        settings: dict[str, Any] = {"file_system": files, "checkpoint_interval": every(records=6), "batch_size": 2}
        first = execution(
            rows_job(SINKS[kind](world), before), kills=[("numbers", at_us * US)], restart=NoRestart(), **settings
        )
        assert first.run().error is not None
        second = execution(rows_job(SINKS[kind](world), after), restore=True, incarnation=2, **settings)
        second.run().raise_on_failure()

        assert world.visible == Counter(range(RECORDS))
        if kind == "listed":
            assert world.listed_names.keys() == world.rows.keys()


def test_names_and_uids_are_made_from_those_of_the_call() -> None:
    """Each operator keeps its state when the job changes around it."""
    plan = rows_job(Listed(World()), name="flights").plan()
    operators = {operator.name: operator.uid for vertex in plan.vertices for operator in vertex.operators}

    assert operators["flights"] == "out"
    assert operators["flights-committer"] == "out-committer"
    assert operators["flights-global-committer"] == "out-global-committer"
    assert {v.parallelism for v in plan.vertices if "global" in v.name} == {1}


def test_a_sink_without_any_committer_is_refused() -> None:
    """Its output would never be visible."""
    with pytest.raises(ConfigurationError, match="Rows has neither create_committer"):
        rows_job(Rows(World()))


def test_a_record_that_cannot_be_written_is_named() -> None:
    """The error also says which call failed."""
    harness = Harness(WriterOperator(Committing(World())))

    with pytest.raises(UserFunctionError, match=r"(?s)unlucky number.*not this one.*13000"):
        harness.process([13_000])


def test_the_end_is_named_by_the_checkpoint_after_the_last_one() -> None:
    """Then the writer announces that no more comes, and hands out no more committables."""
    harness = Harness(WriterOperator(Committing(World())), subtask=1, parallelism=3)
    harness.process([1])
    harness.snapshot(4)
    harness.process([2])
    harness.finish()
    harness.snapshot(6)

    assert harness.take_values() == [
        *messages(4, 1, 3, [((1, 1, 1, 0), [1])]),
        *messages(5, 1, 3, [((1, 1, 1, 1), [2])]),
        summary(END_OF_INPUT, 1, 3, 0),
    ]


class _Failing(Committing):
    def create_committer(self, context: OperatorContext) -> Committer:
        class Failing:
            def commit(self, requests: Sequence[CommitRequest]) -> None:
                raise KeyError("table")

        return Failing()


def test_the_mistake_of_a_committer_is_named_as_such() -> None:
    """The error also names the committables of the request."""
    harness = Harness(CommitterOperator(_Failing(World())))
    harness.process(messages(1, 0, 1, ["piece"]))

    with pytest.raises(UserFunctionError, match=r"(?s)committer.*KeyError.*piece"):
        harness.complete(1)


class _Reluctant(Committing):
    """Puts off every committable once."""

    rules = CommitRules(retry_delay_ms=1000)

    def create_committer(self, context: OperatorContext) -> Committer:
        return _PuttingOff(self.world)


class _PuttingOff(_Publishing):
    def commit(self, requests: Sequence[CommitRequest]) -> None:
        if all(request.retries for request in requests):
            super().commit(requests)
        else:
            for request in requests:
                request.retry_later()


def test_a_delayed_retry_waits_for_its_timer() -> None:
    """Nothing is published before that; a restore asks at once, and waits again."""
    world = World()
    harness = Harness(CommitterOperator(_Reluctant(world)))
    harness.process(messages(1, 0, 1, [("piece", [1])]))
    checkpoint = harness.checkpoint(1)
    harness.advance_ms(999)
    assert not world.rows
    harness.advance_ms(1)
    assert list(world.rows.values()) == [[1]]

    world = World()
    harness = Harness(CommitterOperator(_Reluctant(world)), attempt=2, restored=checkpoint)
    harness.advance_ms(1000)
    assert list(world.rows.values()) == [[1]]


def test_what_a_restore_commits_is_told_once_operators_are_open() -> None:
    """The report comes with the first element, or before the next barrier."""
    world = World()
    first = Harness(CommitterOperator(Listed(world), emits=True))
    first.process(messages(1, 0, 1, [("piece", [1])]))
    checkpoint = first.snapshot(1)

    second = Harness(CommitterOperator(Listed(world), emits=True), attempt=2, restored=checkpoint)
    assert second.take_values() == []
    second.snapshot(2)

    assert second.take_values() == messages(1, 0, 1, [("piece", [1])])


def test_a_committer_says_when_nothing_more_comes_from_it() -> None:
    """It says so after the end of its input, once everything is committed."""
    harness = Harness(CommitterOperator(Listed(World()), emits=True))
    harness.process(messages(1, 0, 1, [("piece", [1])]))
    harness.finish()
    assert harness.take_values() == []

    harness.complete(1)

    assert harness.take_values() == [*messages(1, 0, 1, [("piece", [1])]), summary(END_OF_INPUT, 0, 1, 0)]


def test_resources_of_writers_and_committers_are_released() -> None:
    """They are released at the end, and when the process is dead."""
    closed: list[str] = []

    class Holding(Committing):
        def create_writer(self, context: OperatorContext, restored: list[Any]) -> SinkWriter:
            class Writer(_RowsWriter):
                def close(self) -> None:
                    closed.append("writer")

            return Writer(context)

        def create_committer(self, context: OperatorContext) -> Committer:
            class Closable(_Publishing):
                def close(self) -> None:
                    closed.append("committer")

            return Closable(World())

    for make in (lambda: WriterOperator(Holding(World())), lambda: CommitterOperator(Holding(World()))):
        Harness(make()).close()
        Harness(make()).operator.abandon()
        make().close()

    assert closed == ["writer", "writer", "committer", "committer"]


def test_the_global_committer_goes_on_from_its_state() -> None:
    """It commits what the restored checkpoint covers."""
    world = World()
    first = Harness(GlobalCommitterOperator(OnlyGlobal(world), commit_on_input=False))
    first.process([*messages(1, 0, 2, [("a", [1])]), summary(1, 1, 2, 1), committable(1, 1, ("b", [2]))])
    checkpoint = first.snapshot(1)
    assert world.listed == []

    Harness(GlobalCommitterOperator(OnlyGlobal(world), commit_on_input=False), attempt=2, restored=checkpoint)

    assert world.listed == [[("a",), ("b",)]]
