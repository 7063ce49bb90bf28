"""One case from its first process to its last: ends, bounds, what the runner itself finds, and the concrete form."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from engine.checkpoint.coordinator import CheckpointCoordinator
from engine.checkpoint.restore import UnsupportedMappingError
from engine.elements.errors import ConfigurationError
from engine.explore.cases import FIFO, PCT, RANDOM, Case, run_config
from engine.explore.run import Bounds, FinishedCase, Invariant, Subject, World, hears, run_case, trace_digest
from engine.explore.run.hearing import InvariantError
from engine.explore.shrink import concretised
from engine.faults.fault import FaultMix, parse_fault
from engine.graph.job import Job
from engine.observe.trace_events import CheckpointTriggered, RunStarted, Send, TaskState, TraceEvent
from engine.runtime.execution import Execution
from engine.runtime.job import JobManager
from engine.runtime.kernel import START_NS
from operators.basic import CollectedResults
from operators.sources import SequenceSource
from tests.explore.subjects import counting_subject, failing_subject, order_dependent_subject

SUBJECT = counting_subject()
SETTINGS = {"checkpoint_interval": "5us", "batch_size": 1}


def committed_rows(case: Case) -> list[str]:
    """The rows that a case commits, sorted; it must have come to its end."""
    finished = run_case(SUBJECT, case)
    assert finished.is_over, finished.violations
    return sorted(finished.committed["out"])


def test_a_case_without_faults_is_over_and_violates_nothing() -> None:
    """The plain case: finished, one process, and every row once."""
    finished = run_case(SUBJECT, Case(config=SETTINGS))
    assert (finished.outcome, finished.incarnations, finished.violations) == ("finished", 1, [])
    assert finished.events == finished.result.events_executed > 0
    assert sorted(finished.committed["out"]) == sorted(f"({key}, {n})" for key in range(3) for n in range(1, 9))


@pytest.mark.parametrize("name", ["speed", "cost.speed", "cost.stragglers", "cost.record_ns.count", "seed", "restart"])
def test_a_setting_that_is_none_is_refused(name: str) -> None:
    """An unknown name is an error, not ignored."""
    with pytest.raises(ConfigurationError, match="no setting"):
        run_config(Case(config={name: 3}))


def test_settings_reach_the_run() -> None:
    """Costs by name slow down the operators that they name."""
    def ended(**config: Any) -> int:
        return run_case(SUBJECT, Case(scheduler=FIFO, config={**SETTINGS, **config})).result.ended_ns

    config = run_config(Case(config={"cost.stragglers.count[0]": 3, "cost.slow_links.numbers": 7}))
    assert (config.cost.stragglers, config.cost.slow_links) == ({"count[0]": 3}, {"numbers": 7})
    assert ended(**{"cost.slow_links.numbers": 50_000}) >= ended() + 50_000


def test_a_job_that_never_gets_past_a_record_is_cut_off() -> None:
    """It restarts for ever; after so many events that is a breach of liveness, which names the waiting tasks."""
    finished = run_case(failing_subject(), Case(config={"batch_size": 1}), bounds=Bounds(events=3_000))
    assert finished.outcome == "cut off"
    assert [one.invariant for one in finished.violations] == ["V13"]
    assert "job manager" in finished.violations[0].text
    assert 3_000 < finished.events < 10_000
    assert not finished.is_over


def test_of_many_tasks_that_wait_the_first_few_are_named() -> None:
    """A message that lists all of them cannot be read; their number says how many there are."""
    def build(parallelism: int | None) -> Job:
        job = Job("wide", parallelism=parallelism or 1)
        job.source(SequenceSource(0, 4), name="numbers").rebalance().collect(CollectedResults(), name="out")
        return job

    finished = run_case(Subject(build), Case(config={**SETTINGS, "parallelism": 50}), bounds=Bounds(events=400))

    (violation,) = finished.violations
    assert violation.invariant == "V13"
    assert re.search(r"; numbers\[\d\] (.*, ){4}[^,]* and 9\d more$", violation.text), violation.text
    assert len(violation.text) < 400


def test_virtual_time_is_bounded_too() -> None:
    """A case may not take for ever even with few events."""
    bounds = Bounds(events=10**9, virtual_ns=1_000_000)
    finished = run_case(failing_subject(), Case(config={"batch_size": 1}), bounds=bounds)
    assert finished.outcome == "cut off"
    assert "ns:" in finished.violations[0].text
    once = run_case(failing_subject(), Case(config={"batch_size": 1}), bounds=Bounds(attempts=3))
    assert "not ended after 3 attempts" in once.violations[0].text
    assert "ZeroDivisionError" in once.violations[0].text


def test_a_job_that_waits_for_nothing_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """No event is left and the job has not ended: a deadlock, and not an assertion among others."""
    monkeypatch.setattr(JobManager, "task_reached_end", lambda _manager, _task: None)
    finished = run_case(SUBJECT, Case(config={"checkpoint_interval": None}))
    assert finished.outcome == "broken"
    assert finished.violations[0].invariant == "V13"
    assert "nothing is left to happen" in finished.violations[0].text
    assert "count[0]" in finished.violations[0].text


def test_an_error_in_the_start_of_a_process_is_no_deadlock(monkeypatch: pytest.MonkeyPatch) -> None:
    """No event is left where nothing has begun: the case reports the error, not a deadlock."""
    def broken(*_arguments: object) -> None:
        raise AssertionError("a state without an owner")

    monkeypatch.setattr(Execution, "begin", broken)
    finished = run_case(SUBJECT, Case(config=SETTINGS))
    assert [str(one) for one in finished.violations] == ["assertion: AssertionError: a state without an owner"]


def test_causes_come_before_consequences() -> None:
    """Violations come in the order a reader needs: causes in their order in time, and then the output."""

    class Finds(Invariant):
        def __init__(self, name: str, *times: int | None) -> None:
            super().__init__()
            self.name, self._times = name, times

        def finished(self, case: FinishedCase) -> None:
            for at_ns in self._times:
                self.violated("wrong", at_ns)

    finished = run_case(SUBJECT, Case(), [Finds("V2", 3), Finds("V1", None), Finds("V7", None, 9), Finds("V4", 20)])
    found = [(one.invariant, one.at_ns) for one in finished.violations]
    assert found == [("V7", 9), ("V4", 20), ("V7", None), ("V1", None), ("V2", 3)]


def test_an_assertion_of_the_engine_is_a_violation(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broken assertion ends the case, not the search."""
    def broken(*_arguments: object) -> None:
        raise AssertionError("two acknowledgements of one task")

    monkeypatch.setattr(CheckpointCoordinator, "on_acknowledge", broken)
    finished = run_case(SUBJECT, Case(config=SETTINGS))
    assert finished.outcome == "broken"
    assert [str(one) for one in finished.violations] == ["assertion: AssertionError: two acknowledgements of one task"]


class Faulty(Invariant):
    """An invariant with a bug."""

    name = "faulty"

    def __init__(self, at_the_end: bool) -> None:
        super().__init__()
        self._at_the_end = at_the_end

    def handlers(self) -> Mapping[type[Any], Callable[[Any], None]]:
        """Fails at a record that is sent, deep inside a task."""
        return {} if self._at_the_end else {Send: self._fail}

    def _fail(self, _event: object) -> None:
        raise KeyError("channel 7")

    def finished(self, case: object) -> None:
        if self._at_the_end:
            self._fail(case)


@pytest.mark.parametrize("at_the_end", [False, True])
def test_a_broken_invariant_is_no_failure_of_the_job(at_the_end: bool) -> None:
    """It does not count as a failed task, which would be restarted, nor as a violation."""
    with pytest.raises(InvariantError, match="channel 7"):
        run_case(SUBJECT, Case(config=SETTINGS), [Faulty(at_the_end)])


class Counting(Invariant):
    name = "counting"

    def __init__(self) -> None:
        super().__init__()
        self.seen: dict[str, int] = {}
        self.starts: list[int] = []
        self.deaths = 0

    def handlers(self) -> Mapping[type[Any], Callable[[Any], None]]:
        """Two kinds of events."""
        return {RunStarted: self._count, TaskState: self._count}

    def _count(self, event: object) -> None:
        name = type(event).__name__
        self.seen[name] = self.seen.get(name, 0) + 1

    def process_started(self, view: Any) -> None:
        self.starts.append(view.incarnation)

    def process_died(self, _view: object) -> None:
        self.deaths += 1

    def finished(self, case: object) -> None:
        self.violated("something")


def test_invariants_hear_what_they_asked_for_and_are_asked_in_the_end() -> None:
    """Each hears of its kinds of events only; what it finds is in the case."""
    one, other = Counting(), Counting()
    trace: list[TraceEvent] = []
    finished = run_case(SUBJECT, Case(config=SETTINGS), [one, other], instruments=[trace.append])
    expected = {kind.__name__: sum(type(event) is kind for event in trace) for kind in (RunStarted, TaskState)}
    assert one.seen == other.seen == expected
    assert one.starts == [1]
    assert [str(violation) for violation in finished.violations] == ["counting: something"] * 2


def test_an_invariant_hears_each_kind_once() -> None:
    """A second method for one kind would never be called: it is refused, also below a class that hears it."""

    class Hears(Invariant):
        @hears(Send)
        def on_send(self, event: Send) -> None: ...

    class Replaces(Hears):
        @hears(Send)
        def on_send(self, event: Send) -> None: ...

    with pytest.raises(AssertionError, match="HearsBelow hears Send twice: with on_send and with on_another"):

        class HearsBelow(Hears):
            @hears(Send)
            def on_another(self, event: Send) -> None: ...

    with pytest.raises(AssertionError, match="hears Send twice"):

        class HearsBeside(Invariant):
            @hears(Send)
            def on_send(self, event: Send) -> None: ...

            @hears(Send, TaskState)
            def on_both(self, event: Send | TaskState) -> None: ...


def test_checkpoints_are_triggered_at_the_instants_that_are_named() -> None:
    """Named instants replace the interval; the checkpoint after the end of input comes by itself."""
    trace: list[TraceEvent] = []
    run_case(SUBJECT, Case(config=SETTINGS, checkpoints=(3_500, 7_000)), instruments=[trace.append])
    triggered = [event.time_ns - START_NS for event in trace if isinstance(event, CheckpointTriggered)]
    assert triggered[:-1] == [3_500, 7_000]
    assert triggered[-1] > 7_000


def test_digests_tell_runs_apart() -> None:
    """One event less, or other fields, is another digest; the same events are the same digest."""
    trace: list[TraceEvent] = []
    run_case(SUBJECT, Case(config=SETTINGS), instruments=[trace.append])
    digest = trace_digest(trace)
    assert trace_digest(list(trace)) == digest
    assert trace_digest(trace[:-1]) != digest
    sends = [at for at, event in enumerate(trace) if isinstance(event, Send)]
    altered = list(trace)
    altered[sends[0]] = altered[sends[0]]._replace(queued=99)  # type: ignore[union-attr]
    assert trace_digest(altered) != digest


# -- the concrete form ----------------------------------------------------------------------------------------------

CONFIGS: tuple[dict[str, Any], ...] = (
    {"checkpoint_interval": "4us"},
    {"checkpoint_interval": "6us", "mode": "unaligned", "cost.record_ns": 400},
    {"checkpoint_interval": "5us", "mode": "at-least-once", "cost.storage_latency_ns": 900, "inline_state_bytes": 0},
    {"checkpoint_interval": "7rec", "cost.link_latency_ns": 300},
)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from((RANDOM, PCT)), st.sampled_from(CONFIGS), st.booleans())
def test_the_concrete_form_is_the_same_run(seed: int, scheduler: str, config: dict[str, Any], crashes: bool) -> None:
    """Exact faults, a sparse schedule, and nothing by chance: event by event what the drawn case did."""
    mix = FaultMix({"crash": 4_000}, 2) if crashes else FaultMix()
    case = Case(seed=str(seed), scheduler=scheduler, config={**config, "batch_size": 2}, mix=mix)
    first: list[TraceEvent] = []
    second: list[TraceEvent] = []
    finished = run_case(SUBJECT, case, instruments=[first.append])
    concrete = concretised(finished)
    again = run_case(SUBJECT, concrete, instruments=[second.append])
    assert trace_digest(second) == trace_digest(first)
    assert (concrete.scheduler, concrete.mix, again.unused) == (FIFO, FaultMix(), ())
    assert again.committed == finished.committed


def test_checkpoints_of_the_concrete_form_are_named() -> None:
    """With an interval in time the instants are written down, and the interval is gone."""
    concrete = concretised(run_case(SUBJECT, Case(seed="5", config={**SETTINGS, "mode": "unaligned"})))
    assert concrete.checkpoints == (5_000, 10_000)
    assert "checkpoint_interval" not in concrete.config


# -- deaths of processes ----------------------------------------------------------------------------------------------


def test_a_dead_process_is_followed_by_the_next_one() -> None:
    """It is resumed from what is durable; invariants are told; nothing is lost and nothing is there twice."""
    invariant = Counting()
    faults = (parse_fault("crash:process@9us"), parse_fault("crash:process@after:complete.decide#1"))
    finished = run_case(SUBJECT, Case(config=SETTINGS, faults=faults), [invariant])
    assert finished.outcome == "finished"
    assert (invariant.starts, invariant.deaths, finished.incarnations) == ([1, 2, 3], 2, 3)
    assert sorted(finished.faults, key=str) == sorted(faults, key=str)
    assert sorted(finished.committed["out"]) == committed_rows(Case(config=SETTINGS))


def test_a_rescaled_process_has_another_parallelism() -> None:
    """The next process has as many subtasks as the fault says."""
    case = Case(config=SETTINGS, faults=(parse_fault("rescale:process@9us=3"),))
    finished = run_case(SUBJECT, case)
    assert finished.outcome == "finished"
    assert [vertex.parallelism for vertex in finished.view.plan.vertices if vertex.name == "count"] == [3]
    assert sorted(finished.committed["out"]) == committed_rows(Case(config=SETTINGS))


def test_records_in_flight_between_what_is_one_task_now_are_refused_rightly() -> None:
    """Resumed with one subtask, counter and sink are chained: no channel can take the records between them."""

    def build(parallelism: int | None) -> Job:
        made = Job("chains", parallelism=parallelism or 2)
        numbers = made.source(SequenceSource(0, 12), name="numbers", uid="numbers", parallelism=1)
        pairs = numbers.key_by(lambda number: number % 2, value=lambda number: (number % 2, 1))
        counts = pairs.reduce(lambda left, right: (left[0], left[1] + right[1]), name="count", uid="count")
        return counts.collect(CollectedResults(), name="out", uid="out", parallelism=1)

    case = Case(
        scheduler=FIFO,
        config={"mode": "unaligned", "batch_size": 1, "cost.record_ns": 900, "cost.stragglers.out": 30},
        faults=(parse_fault("rescale:process@after:manifest.rename#1=1"),),
        checkpoints=(6_000,),
    )
    finished = run_case(Subject(build), case)
    assert (finished.outcome, finished.violations) == ("refused", [])
    assert "on edges that the job does not have" in str(finished.error)


def test_records_in_flight_that_cannot_be_divided_are_refused_rightly() -> None:
    """With one subtask of each the edge to the sink is a forward edge: what was under way on the old one to several
    cannot go there, and refusing the resume is what the job is to do."""
    config = {"mode": "unaligned", "batch_size": 1, "checkpoint_interval": "8us", "channel_capacity": 1}
    config |= {"output_capacity": 4, "cost.stragglers.out": 30, "cost.record_ns": 900, "parallelism": 3}
    faults = (parse_fault("rescale:process@after:manifest.rename#1=1"),)
    finished = run_case(SUBJECT, Case(config=config, faults=faults))
    assert (finished.outcome, finished.violations) == ("refused", [])
    assert isinstance(finished.error, UnsupportedMappingError)


def test_a_fault_that_never_struck_is_reported() -> None:
    """It must not count as a fault that the job survived."""
    fault = parse_fault("crash:count[0]@1s")
    finished = run_case(SUBJECT, Case(config=SETTINGS, faults=(fault,)))
    assert (finished.faults, finished.unused) == ((), (fault,))


def test_processes_that_die_one_after_the_other_are_bounded() -> None:
    """A case in which every process dies too early does not go on for ever."""
    faults = tuple(parse_fault(f"crash:process@before:source.emit#{number}") for number in range(1, 6))
    finished = run_case(SUBJECT, Case(config=SETTINGS, faults=faults), bounds=Bounds(processes=3))
    assert finished.outcome == "cut off"
    assert finished.violations[0].invariant == "V13"


def test_the_callers_world_is_used() -> None:
    """The files of the case can be looked at."""
    world = World()
    run_case(SUBJECT, Case(config=SETTINGS), world=world)
    assert any(path.endswith("_metadata") for path in world.checkpoints.walk_files("/"))
    assert len(world.sinks["out"].committed_rows()) == 24


# -- references -------------------------------------------------------------------------------------------------------


def test_the_reference_is_what_every_schedule_commits() -> None:
    """One output for all schedules, parallelisms and batch sizes."""
    reference = counting_subject().reference()
    assert reference.order_dependent is None
    assert len(reference.endings) == 1
    assert sorted(reference.rows["out"]) == committed_rows(Case(config={**SETTINGS, "parallelism": 3}))


def test_a_job_that_depends_on_the_order_is_noticed() -> None:
    """Several endings, and a text that says how they differ."""
    reference = order_dependent_subject().reference()
    assert len(reference.endings) > 1
    assert "output differs" in str(reference.order_dependent)


def test_a_reference_of_part_of_the_input() -> None:
    """Records that are left out are not in it, and it is made only once."""
    subject = counting_subject()
    dropped = {"numbers/sequence-0-of-2": ((0, 3),)}
    reference = subject.reference(dropped)
    assert len(reference.rows["out"]) == 21
    assert subject.reference(dropped) is reference
    finished = run_case(subject, replace(Case(config=SETTINGS), dropped=dropped))
    assert sorted(finished.committed["out"]) == sorted(reference.rows["out"])
