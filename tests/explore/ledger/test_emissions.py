"""Records that operators emit on their own account are causes of their own, rolled back with their state."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest

from engine import CollectedResults, CollectSink, CostModel, Job, SequenceSource
from engine.elements.batch import Batch
from engine.elements.operator import Operator
from engine.explore.ledger import TWICE, Place, reference
from operators.basic import FunctionSink, KeyedProcessFunction, ListCheckpointed, SinkFunction
from operators.time import WatermarkStrategy
from operators.windows import EventTimeSessionWindows, TumblingEventTimeWindows
from spark_bridge import rows_cut, spark_transform
from tests.explore.ledger.jobs import audited, config

Make = Callable[[CollectedResults], Job]


def _keyed(name: str) -> tuple[Job, Any]:
    job = Job(name, max_parallelism=16)
    strategy = WatermarkStrategy.for_monotonous_timestamps(lambda number: number % 150).with_interval_ns(10_000)
    split = SequenceSource(0, 300, splits=2)
    numbers = job.source(split, watermarks=strategy, name="numbers", uid="numbers", parallelism=2)
    return job, numbers.map(lambda number: (number % 3, number), name="pair", uid="pair", parallelism=2).key_by(
        lambda pair: pair[0]
    )


def tumbling(results: CollectedResults) -> Job:
    job, keyed = _keyed("tumbling")
    window = keyed.window(TumblingEventTimeWindows.of(20))
    window.reduce(lambda a, b: (a[0], a[1] + b[1]), name="sum", uid="sum", parallelism=2).sink(
        CollectSink(results), name="out", uid="out", parallelism=1
    )
    return job


def sessions(results: CollectedResults) -> Job:
    job, keyed = _keyed("sessions")
    window = keyed.window(EventTimeSessionWindows.with_gap(4))
    window.reduce(lambda a, b: (a[0], a[1] + b[1]), name="sum", uid="sum", parallelism=2).sink(
        CollectSink(results), name="out", uid="out", parallelism=1
    )
    return job


class _Later(KeyedProcessFunction):
    """Says of each key how many records it has seen, every 30 ms of event time."""

    def process_element(self, value: Any, ctx: Any) -> Iterable[Any] | None:
        count = ctx.value_state("count", 0)
        count.update(count.get() + 1)
        ctx.register_event_time_timer(ctx.timestamp_ms // 30 * 30 + 29)
        return None

    def on_timer(self, time_ms: int, ctx: Any) -> Iterable[Any] | None:
        return [(ctx.current_key, time_ms)]


class _LaterWithState(_Later, ListCheckpointed):
    """The same beside operator state, which the operator around it keeps."""


def timers_beside_state(results: CollectedResults) -> Job:
    job, keyed = _keyed("timers")
    keyed.process(_LaterWithState, name="sum", uid="sum", parallelism=2).sink(
        CollectSink(results), name="out", uid="out", parallelism=1
    )
    return job


def timers(results: CollectedResults) -> Job:
    job, keyed = _keyed("timers")
    keyed.process(_Later, name="sum", uid="sum", parallelism=2).sink(
        CollectSink(results), name="out", uid="out", parallelism=1
    )
    return job


@pytest.mark.parametrize("make", [tumbling, sessions, timers, timers_beside_state])
@pytest.mark.parametrize("mode", ["aligned", "unaligned"])
@pytest.mark.parametrize("kill", ["sum[0]@135us", "numbers[0]@148us"])
def test_windows_and_timers_are_judged_like_records(make: Make, mode: str, kill: str) -> None:
    """In the modes that promise it, every record reaches its key once, and every result readers once."""
    run = audited(config(mode), [kill], make=make)
    assert run.result.attempts == 2
    assert run.told() == []
    assert run.found.unsettled == 0
    origins = {run.ledger.origins[number] for number in run.ledger.effects()[Place("out", "output")].splits}
    assert origins
    assert not any(origin.is_source for origin in origins)
    assert {origin.key for origin in origins} == {0, 1, 2}


@pytest.mark.parametrize("make", [tumbling, timers])
def test_results_shown_twice_are_named_by_key_and_window(make: Make) -> None:
    """Of a sink that shows at once, results shown before and after a restart are found, as emissions of their key."""
    run = audited(config("aligned"), ["out[0]@166us"], make=make, transactional=False)
    twice = [one for one in run.found.found if one.kind == TWICE]
    assert twice
    assert all(one.place == Place("out", "output") and not one.origin.is_source for one in twice)
    assert all(one.restart is not None for one in twice)
    assert "emission" in twice[0].text
    assert "of sum[key " in twice[0].text
    assert "made when " in twice[0].text


class _AsMany(_Later):
    """Emits as many rows as it has seen records."""

    def on_timer(self, time_ms: int, ctx: Any) -> Iterable[Any] | None:
        return [(ctx.current_key, number) for number in range(ctx.value_state("count", 0).get())]


def test_a_result_of_a_record_too_many_is_a_consequence() -> None:
    """If a cell has seen records twice, results that differ because of it are counted, not reported."""

    def as_many(results: CollectedResults) -> Job:
        job, keyed = _keyed("as-many")
        keyed.process(_AsMany, name="sum", uid="sum", parallelism=2).sink(
            CollectSink(results), name="out", uid="out", parallelism=1
        )
        return job

    found = audited(config("at-least-once", cost=CostModel(slow_links={"numbers[1]": 50_000})), ["sum[0]@125us"],
                    make=as_many, sees=False).found  # fmt: skip
    assert {one.place.kind for one in found.found} == {"key"}
    assert found.consequences > 0


class _Gather(Operator):
    """Keeps records back until the end, and says nothing of where they come from."""

    def __init__(self) -> None:
        self._rows: list[Any] = []

    def process_batch(self, batch: Batch) -> None:
        self._rows += batch.values

    def finish(self) -> None:
        self.output.emit(Batch(self._rows))


class _GatherSpec:
    name = "gather"

    def create_operator(self) -> Operator:
        return _Gather()


def test_an_operator_that_says_nothing_emits_on_its_own_account() -> None:
    """A record emitted outside a call for an input record does not count as an effect of the previous one."""

    def gathering(results: CollectedResults) -> Job:
        job = Job("gathering")
        numbers = job.source(SequenceSource(0, 50), name="numbers", uid="numbers", parallelism=1)
        numbers.via(_GatherSpec()).sink(CollectSink(results), name="out", uid="out", parallelism=1)
        return job

    run = audited(config(), make=gathering)
    assert run.told() == []
    (origin,) = run.ledger.effects()[Place("out", "output")].splits
    assert not run.ledger.origins[origin].is_source


def test_a_batch_carries_the_records_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The output of a batch operator names the records of its batch, and they are lost and doubled with it."""

    def batches(results: CollectedResults) -> Job:
        job = Job("batches")
        numbers = job.source(SequenceSource(0, 100), name="numbers", uid="numbers", parallelism=1)
        many = numbers.via(spark_transform(lambda frame: frame, schema="n bigint", cut=rows_cut(10), name="many"))
        many.sink(CollectSink(results), name="out", uid="out", parallelism=1)
        return job

    monkeypatch.setattr("spark_bridge.transform.run_batch", lambda fn, rows, schema, **_: [len(rows)])
    run = audited(config("aligned"), ["out@95us"], make=batches, transactional=False)
    twice = [one for one in run.found.found if one.kind == TWICE]
    assert len(twice) == 1
    assert "made of 60-69 of numbers/" in twice[0].text
    assert audited(config("aligned"), ["out@95us"], make=batches).told() == []


def test_in_a_run_without_a_ledger_timers_still_emit_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only a run that is watched emits the results of each timer by themselves."""
    from engine.runtime.execution import Execution

    def sizes(watched: bool) -> list[int]:
        seen: list[int] = []
        results = CollectedResults(transactional=False)
        monkeypatch.setattr(results, "append", lambda records: seen.append(len(records)))
        plan = tumbling(results).plan()
        if watched:
            audited(config(), make=lambda _: tumbling(results), sees=False)
        else:
            Execution(plan, config(), output_dir="/out").run().raise_on_failure()
        return seen

    assert max(sizes(False)) > 1
    assert max(sizes(True)) == 1


def test_a_reference_writes_nothing() -> None:
    """The runs that compute the expected effects do not touch the sinks of the job."""
    results = CollectedResults()
    expected = reference(tumbling(results).plan(), config())
    assert results.records == []
    assert Place("out", "output") in expected.effects
    assert len(Batch([])) == 0


class _Written(SinkFunction, ListCheckpointed):
    """Counts what it writes."""

    def __init__(self, written: list[Any]) -> None:
        self.written = written

    def invoke(self, value: Any, ctx: Any) -> None:
        self.written.append(value)

    def snapshot_state(self, checkpoint_id: int) -> list[Any]:
        return [len(self.written)]


def test_a_reference_does_not_call_a_sink_function_with_state() -> None:
    """It would write everything twice more; the sink looks the same to both ledgers."""
    written: list[Any] = []

    def writing(results: CollectedResults) -> Job:
        job = Job("writing")
        numbers = job.source(SequenceSource(0, 50), name="numbers", uid="numbers", parallelism=1)
        numbers.sink(FunctionSink(_Written(written)), name="out", uid="out", parallelism=1)
        return job

    assert audited(config(), make=writing, sees=False).told() == []
    assert written == list(range(50))
