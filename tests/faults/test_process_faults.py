"""Faults of processes and of user code: which actor they strike, when, and what is noted of it."""

from __future__ import annotations

import copy
from dataclasses import replace

import pytest

from engine.elements.errors import ConfigurationError
from engine.explore.cases import run_config
from engine.explore.run import run_case, trace_digest
from engine.faults.fault import Fault, FaultMix, parse_fault
from engine.faults.injector import FaultInjector
from engine.faults.process import RaisedOnPurposeError, worker_of
from engine.observe.trace_events import TraceEvent
from engine.runtime.config import RunConfig
from engine.runtime.execution import Execution
from engine.runtime.faulted import JOB_MANAGER, PROCESS, StruckDown
from engine.runtime.kernel import START_NS, ChoiceRecorder
from tests.faults.point_jobs import COUNTING, EXPECTED, SETTINGS, case_of, counting, output, ran

MIX = FaultMix({"crash": 1_500, "pause": 800, "rescale": 200, "raise": 600}, most=3)


def armed(*texts: str) -> FaultInjector:
    """An injector that is installed in an execution of the counting job."""
    injector = FaultInjector([parse_fault(text) for text in texts])
    injector.install(Execution(counting().plan(), RunConfig(), interference=injector))
    return injector


def struck_by(injector: FaultInjector, actor: str, point: str = "snapshot.sync", phase: str = "before") -> str | None:
    try:
        injector.at(point, phase, actor)
    except StruckDown as struck:
        struck.is_over = True
        return struck.target
    return None


def test_visits_count_for_whom_the_fault_is_meant() -> None:
    """A fault strikes at the n-th visit that its target matches, and only once."""
    injector = armed("crash:count[*]@before:snapshot.sync#2")

    met = [struck_by(injector, who) for who in ("near[0]", "count[0]", "far[0]", "count[1]", "count[0]", "count[1]")]

    assert met == [None, None, None, "count[1]", None, None]
    assert injector.struck == (parse_fault("crash:count[*]@before:snapshot.sync#2"),)
    assert injector.points == {("snapshot.sync", "before"): 6}


def test_phases_and_points_are_told_apart() -> None:
    """A visit of another phase or point does not count."""
    injector = armed("crash:count[1]@after:ack.send#1")

    assert struck_by(injector, "count[1]", "ack.send", "before") is None
    assert struck_by(injector, "count[1]", "snapshot.sync", "after") is None
    assert struck_by(injector, "count[1]", "ack.send", "after") == "count[1]"


def test_a_worker_is_all_subtasks_of_an_index() -> None:
    """A visit of any member counts for it; other visits do not."""
    injector = armed("crash:worker[1]@before:snapshot.sync#2")

    assert struck_by(injector, "count[0]") is None
    assert struck_by(injector, "count[1]") is None
    assert struck_by(injector, "out[1]") == "worker[1]"
    assert worker_of("count[12]") == "worker[12]"
    assert worker_of(JOB_MANAGER) is None


def test_the_process_dies_whoever_comes_by() -> None:
    """All visits of the point count for the process."""
    injector = armed("crash:process@before:snapshot.sync#3")

    assert [struck_by(injector, who) for who in ("near[0]", "count[0]", "out[1]")] == [None, None, PROCESS]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("crash:count[1]#2", "say when"),
        ("crash:counts[1]@1us", "there is no task 'counts[1]'"),
        ("crash:count[7]@1us", "there is no task 'count[7]'"),
        ("pause:count[1]@1us", "for how long"),
        ("pause:job manager@1us~2us", "would have no effect"),
        ("rescale:process@1us", "with which parallelism"),
        ("rescale:count[1]@1us=3", "only the whole process"),
        ("raise:count[1]@before:snapshot.sync", "a user's function raises at one of user.process"),
        ("raise:count[1]@1us", "a user's function raises at one of user.process"),
        ("raise:process@before:user.close", "not one of process"),
        ("crash:job manager@torn:snapshot.async.write", "only a writer"),
        ("pause:count[1]@torn:snapshot.async.write~1us", "only a writer"),
        ("crash:count[1]@before:snapshot.synch", "there is no point"),
    ],
)
def test_a_fault_that_makes_no_sense_is_refused(text: str, says: str) -> None:
    """The error says what is wrong, before the run."""
    with pytest.raises(ConfigurationError, match=says.replace("[", r"\[")):
        armed(text)


def test_with_another_parallelism_there_are_other_subtasks() -> None:
    """A fault of a subtask that a rescale creates is not refused; an unknown name still is."""
    armed("rescale:process@1us=3", "crash:count[2]@before:snapshot.sync")
    with pytest.raises(ConfigurationError, match="no task 'counts"):
        armed("rescale:process@1us=3", "crash:counts[2]@before:snapshot.sync")


def test_with_another_parallelism_other_operators_are_chained() -> None:
    """A fault of a task that begins with an operator of the job is not refused when the job is rescaled."""
    armed("rescale:process@1us=3", "crash:count -> out[1]@before:snapshot.sync")
    with pytest.raises(ConfigurationError, match="no task 'counts -> out"):
        armed("rescale:process@1us=3", "crash:counts -> out[1]@before:snapshot.sync")
    with pytest.raises(ConfigurationError, match="no task 'count -> out"):
        armed("crash:count -> out[1]@before:snapshot.sync")


def test_a_crash_at_an_instant_strikes_once_over_all_processes() -> None:
    """At its instant of virtual time a task dies; a process that is resumed at an earlier time does not die again."""
    crash = Fault("crash", PROCESS, at_ns=30_000)
    finished, injector = ran("aligned", crash)

    assert output(finished) == EXPECTED
    assert finished.incarnations == 2
    assert injector.struck == (crash,)
    assert finished.result.started_ns < START_NS + 30_000


@pytest.mark.parametrize("target", ["count[1]", "count[*]", "worker[0]", JOB_MANAGER])
def test_a_crash_at_an_instant_is_survived(target: str) -> None:
    """Whichever task dies, each row is committed once, in a second attempt of the same process."""
    finished, injector = ran("unaligned", Fault("crash", target, at_ns=30_000))

    assert output(finished) == EXPECTED
    assert (finished.incarnations, finished.result.attempts) == (1, 2)
    assert injector.unused == ()


def test_a_task_may_die_while_the_job_manager_is_at_work() -> None:
    """At a point of the job manager, a named task dies as soon as that event is over."""
    trace: list[TraceEvent] = []
    crash = Fault("crash", "count[1]", point="complete.decide", phase="after")
    finished = run_case(COUNTING, case_of("aligned", crash), instruments=[trace.append])

    kinds = [type(event).__name__ for event in trace]
    death = next(at for at, event in enumerate(trace) if getattr(event, "state", "") == "failed")
    assert "CheckpointCompleted" in kinds[:death]
    assert "NotifyComplete" not in kinds[:death]
    assert getattr(trace[death], "task", "") == "count[1]"
    assert output(finished) == EXPECTED


def test_a_rescale_says_how_the_job_is_resumed() -> None:
    """The process dies, and the next one has the requested parallelism."""
    rescale = Fault("rescale", PROCESS, point="notify.send", phase="after", amount=3)
    finished, injector = ran("unaligned", rescale)

    assert injector.processes.next_parallelism == 3
    assert sum(task.vertex == "count" for task in finished.result.tasks) == 3
    assert output(finished) == EXPECTED


@pytest.mark.parametrize(
    "point", ["user.process", "user.snapshot", "user.restore", "user.notify", "user.commit", "user.close"]
)
@pytest.mark.parametrize("phase", ["before", "after"])
def test_a_function_that_raises_fails_its_task(point: str, phase: str) -> None:
    """The attempt ends with its exception, as with any exception of a user, and the next one repairs it."""
    target = "out[*]" if point == "user.commit" else "count[*]"
    fault = Fault("raise", target, point=point, phase=phase)
    finished, injector = ran("aligned", fault)

    assert injector.struck == (fault,)
    assert finished.result.attempts == 2
    assert output(finished) == EXPECTED
    assert any("raises" in note and point in note for note in finished.result.notes), finished.result.notes


def test_what_is_raised_is_no_error_of_the_engine() -> None:
    """It is a plain exception, as a user's would be."""
    injector = armed("raise:count[0]@before:user.process")

    with pytest.raises(RaisedOnPurposeError, match=r"count\[0\] raises before user.process"):
        injector.at("user.process", "before", "count[0]")


def test_torn_writes_leave_a_prefix_that_is_noted() -> None:
    """How much is left was drawn, and is part of the fault that repeats it."""
    torn = Fault("crash", PROCESS, point="manifest.write", phase="torn")
    finished, injector = ran("aligned", torn)

    (noted,) = injector.struck
    assert replace(noted, amount=0) == torn
    assert noted.amount > 0
    assert ran("aligned", noted)[1].struck == (noted,)
    assert output(finished) == EXPECTED


@pytest.mark.parametrize("seed", range(24))
def test_what_struck_by_chance_repeats_the_run(seed: int) -> None:
    """The exact faults of a run by chance, without any chance, make the same trace and the same output."""
    mode = ("aligned", "unaligned", "aligned-timeout")[seed % 3]
    case = replace(case_of(mode, heartbeat_timeout_ns=(3_000, 1_000_000)[seed % 2]), mix=MIX, seed=str(seed))
    first: list[TraceEvent] = []
    second: list[TraceEvent] = []
    finished = run_case(COUNTING, case, instruments=[first.append])
    again = run_case(COUNTING, replace(case, mix=FaultMix(), faults=finished.faults), instruments=[second.append])

    assert output(finished) == EXPECTED
    assert 1 <= len(finished.faults) <= 3
    assert (again.faults, again.unused) == (finished.faults, ())
    assert trace_digest(second) == trace_digest(first)
    assert [parse_fault(str(fault)) for fault in finished.faults] == list(finished.faults)


def test_nothing_strikes_by_chance_once_the_world_is_healed() -> None:
    """After a time chance ends; exact faults still strike."""
    always = FaultMix({"crash": 1_000_000}, most=1_000)
    exact = parse_fault("crash:count[0]@before:snapshot.sync#40")
    injector = FaultInjector([exact], always, ChoiceRecorder("1"), heal_after_ns=0)
    execution = Execution(counting().plan(), _config(), interference=injector)
    injector.install(execution)

    early = [struck_by(injector, "count[0]") for _ in range(10)]
    execution.kernel.now_ns += 1
    late = [struck_by(injector, "count[0]") for _ in range(40)]

    assert any(early)
    assert [at for at, who in enumerate(late) if who is not None] == [29]


def test_healing_by_time_lets_the_job_end() -> None:
    """A job that dies all the time comes to its end once no fault strikes any more."""
    case = replace(case_of("aligned"), mix=FaultMix({"crash": 12_000}, most=1_000))
    choices = ChoiceRecorder(case.seed)
    injector = FaultInjector((), case.mix, choices, heal_after_ns=60_000)
    finished = run_case(COUNTING, case, interference=injector, choices=choices)

    assert len(injector.struck) > 2
    assert output(finished) == EXPECTED


def test_a_copy_of_a_run_goes_on_like_the_run() -> None:
    """An injector that is copied with its run between two events strikes equally in both."""
    crash = parse_fault("crash:count[1]@after:snapshot.sync#1")
    ends = []
    injector = FaultInjector([crash])
    execution = Execution(counting().plan(), _config(), interference=injector)
    injector.install(execution)
    execution.begin()
    execution.run_events(60)
    assert not injector.struck
    for one, its in (copy.deepcopy((execution, injector)), (execution, injector)):
        one.run_events()
        ends.append((one.manager.job.state, one.manager.job.attempt, its.struck, one.kernel.now_ns))

    assert ends[0] == ends[1]
    assert ends[0][:3] == ("finished", 2, (crash,))


def _config() -> RunConfig:
    settings = {name: value for name, value in SETTINGS.items() if name != "inline_state_bytes"}
    return run_config(replace(case_of("aligned"), config=settings))
