"""How a death or a silence in the middle of a step affects a run, and how it does not."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from engine.checkpoint.restore import FixedDelayRestart
from engine.elements.batch import Batch
from engine.graph.job import Job
from engine.observe.points import AFTER, BEFORE
from engine.observe.trace_events import AttemptStarted, Send, TaskState
from engine.runtime.config import CostModel, RunConfig
from engine.runtime.execution import Execution, ExecutionResult
from engine.runtime.faulted import DELIVERED, JOB_MANAGER, PROCESS, NotedVisits, ProcessDiedError, StruckDown
from engine.runtime.faulted.task_faults import TaskFaults
from engine.runtime.tasks import AsyncSnapshot
from operators.basic import CollectedResults
from operators.sources import SequenceSource
from state_backends.files import MemoryFileSystem
from tests.runtime.support import RecordingSink, Trace, every, expected_counts, files_below, storage_in

RECORDS = 24
EXPECTED = expected_counts(RECORDS)
HEARTBEAT_NS = 5_000
SOURCE, COUNT = "numbers -> pair[0]", "count -> out[0]"
"""The tasks of the job; the second one holds the sink."""


class Calm:
    """An interference without faults."""

    visited = NotedVisits()

    def at(self, point: str, phase: str, actor: str) -> None:
        """Nothing."""

    def fates(self, message: str, task: str) -> tuple[int, ...]:
        return DELIVERED

    disturbs_messages = disturbs_elements = disturbs_time = True

    def element_delay_ns(self, channel: str, kind: str) -> int:
        """None."""
        return 0

    def clock_skew_ns(self, task: str) -> int:
        """None."""
        return 0

    def hold_ns(self, task: str, is_source: bool) -> int:
        return 0

    def watermark_delay_ns(self, task: str) -> int:
        """None."""
        return 0


class At(Calm):
    """Has ``victim`` (the visiting actor, if not given) die or fall silent when an actor comes by somewhere."""

    def __init__(
        self, point: str, phase: str, actor: str, number: int = 1, *, victim: str | None = None, pause_ns: int = 0
    ) -> None:
        self.execution: Execution
        self.visits: list[tuple[str, str, str]] = []
        self._here, self._left = (point, phase, actor), number
        self._victim, self._pause_ns = victim, pause_ns

    def at(self, point: str, phase: str, actor: str) -> None:
        """Counts the visits, and strikes at the right one."""
        self.visits.append((point, phase, actor))
        if (point, phase, actor) != self._here:
            return
        self._left -= 1
        if self._left:
            return
        if self._pause_ns:
            self.execution.pause(self._victim or actor, self._pause_ns)
        elif self._victim is None or self._victim == PROCESS:
            raise StruckDown(self._victim or actor, "struck down")
        else:
            self.execution.condemn(self._victim, "struck down")


def made(job: Job, at: Calm | None, *, files: MemoryFileSystem | None = None, **settings: Any) -> Execution:
    """A run of a job with an interference, not started yet."""
    run_config = RunConfig(
        **{
            "batch_size": 4,
            "checkpoint_interval": every(ns=9_000),
            "restart": FixedDelayRestart(None, 1_000),
            "master_recovery_ns": 1_000,
            "heartbeat_timeout_ns": HEARTBEAT_NS,
            "cost": CostModel(record_ns=700, storage_latency_ns=900),
            "inline_state_bytes": 0,
            **{name: value for name, value in settings.items() if name not in ("instruments", "restore")},
        }
    )
    files = MemoryFileSystem() if files is None else files
    execution = Execution(
        job.plan(),
        run_config,
        storage=storage_in(files, job.name, run_config),
        file_system=files,
        output_dir="/out",
        instruments=settings.get("instruments", ()),
        restore=settings.get("restore", False),
        interference=at,
    )
    if isinstance(at, At):
        at.execution = execution
    return execution


def ran(execution: Execution) -> ExecutionResult:
    """Run to the end, with all invariants checked between any two events."""
    result = execution.run(lambda _: execution.manager.validate(), 1)
    assert result.state == "finished", result.error
    return result


def counted(into: Any) -> Job:
    """The numbers, counted by key, into a sink or results."""
    job = Job("counted", max_parallelism=8)
    pairs = job.source(SequenceSource(0, RECORDS), name="numbers").map(lambda number: (number % 3, 1), name="pair")
    sums = pairs.key_by(lambda pair: pair[0]).reduce(lambda a, b: (a[0], a[1] + b[1]), name="count")
    return sums.collect(into, name="out") if isinstance(into, CollectedResults) else sums.sink(into, name="out")


def test_without_interference_there_is_no_hook() -> None:
    """The run consults no interference, and builds no object that would."""
    for at in (None, Calm()):
        execution = made(counted(CollectedResults()), at)
        execution.begin()
        tasks = execution.manager.tasks.values()
        hooks = [one.hook for task in tasks for one in (task.place, *task.inputs)]
        assert [hook is None for hook in (execution.manager.hook, *hooks)] == [at is None] * 4


def test_an_interference_that_does_nothing_changes_nothing() -> None:
    """The trace of a run that is only watched is that of a run that is not."""
    traces = []
    for at in (None, Calm()):
        trace = Trace()
        ran(made(counted(CollectedResults()), at, instruments=[trace]))
        traces.append(trace.events)
    assert traces[0] == traces[1]


def test_the_dead_close_nothing_and_the_killed_do() -> None:
    """An operator whose process dies in a step is never called again; one whose task is killed is closed."""
    struck, killed = RecordingSink(), RecordingSink()
    ran(made(counted(struck), At("snapshot.sync", BEFORE, COUNT, 2)))
    execution = made(counted(killed), None)
    execution.kill("count[0]", 20_000)
    ran(execution)

    assert "close" not in [what for attempt, what, _ in struck.calls if attempt == 1]
    assert [what for attempt, what, _ in killed.calls if attempt == 1][-1] == "close"


def test_the_dead_delete_nothing() -> None:
    """The snapshot files that a task has written when it dies are left for others to delete."""
    files, seen = MemoryFileSystem(), []

    class Looking(At):
        def at(self, point: str, phase: str, actor: str) -> None:
            try:
                super().at(point, phase, actor)
            except StruckDown:
                seen.append(set(files_below(files)))
                raise

    trace = Trace()

    def look(event: object) -> None:
        if isinstance(event, TaskState) and event.state == "failed":
            seen.append(set(files_below(files)))

    ran(
        made(
            counted(CollectedResults()),
            Looking("snapshot.async.step", AFTER, COUNT, 2),
            files=files,
            instruments=[trace, look],
        )
    )

    assert seen[0]
    assert seen[1] == seen[0]


@pytest.mark.parametrize("phase", [BEFORE, AFTER])
def test_a_death_while_others_are_deployed_is_one_death(phase: str) -> None:
    """A task that dies as it takes over its state does not keep the others from theirs."""
    results = CollectedResults()
    trace = Trace()
    result = ran(made(counted(results), At("restore.recover-and-commit", phase, COUNT), instruments=[trace]))

    started = [state.task for state in trace.of(TaskState) if state.attempt == 1 and state.state == "running"]
    assert SOURCE in started
    assert COUNT not in started
    assert result.attempts == 2
    assert Counter(results.records) == EXPECTED


def test_the_process_dies_with_everything() -> None:
    """The run does not go on, no operator is closed, and another process goes on from the files."""
    sink, files = RecordingSink(), MemoryFileSystem()
    first = made(counted(sink), At("notify.send", AFTER, JOB_MANAGER, victim=PROCESS), files=files)
    with pytest.raises(ProcessDiedError, match="struck down") as died:
        first.run()
    assert died.value.at_ns == first.kernel.now_ns
    assert "close" not in [what for _, what, _ in sink.calls]
    assert first.manager.job.state == "running"

    results = CollectedResults()
    second = ran(made(counted(results), None, files=files, restore=True))
    assert second.restores[0].checkpoint_id == 1


def test_the_job_manager_may_die_wherever_it_is() -> None:
    """While it starts, looks for a checkpoint, or is about to say that one is complete: a successor takes over."""
    for point, number in (("complete.decide", 1), ("notify.send", 2), ("restore.read", 1), ("restore.assign-keys", 1)):
        results, files = CollectedResults(), MemoryFileSystem()
        if point.startswith("restore."):
            with pytest.raises(ProcessDiedError):
                made(counted(results), At("notify.send", AFTER, JOB_MANAGER, victim=PROCESS), files=files).run()
        at = At(point, BEFORE, JOB_MANAGER, number)
        execution = made(counted(results), at, files=files, restore=point.startswith("restore."))
        ran(execution)

        assert at.visits.count((point, BEFORE, JOB_MANAGER)) > number, point
        assert Counter(results.records) == EXPECTED, point


def test_a_bystander_dies_once_the_event_is_over() -> None:
    """A task struck in another task's step dies before the next event, not in the middle of this one."""
    results, trace = CollectedResults(), Trace()
    at = At("ack.send", BEFORE, COUNT, victim=JOB_MANAGER)
    result = ran(made(counted(results), at, instruments=[trace]))

    assert ("ack.send", AFTER, COUNT) in at.visits
    assert "the job manager was struck down in attempt 1" in result.notes
    assert Counter(results.records) == EXPECTED


def test_a_paused_task_gets_its_mail_later_and_in_order() -> None:
    """Silent for less than the heartbeat timeout, it goes on as before: one attempt, no record lost."""
    results, trace = CollectedResults(), Trace()
    at = At("snapshot.sync", AFTER, COUNT, pause_ns=HEARTBEAT_NS - 1)
    result = ran(made(counted(results), at, instruments=[trace]))

    states = [state for state in trace.of(TaskState) if state.state in ("paused", "resumed")]
    assert [state.state for state in states] == ["paused", "resumed"]
    assert states[1].time_ns - states[0].time_ns == HEARTBEAT_NS - 1
    assert result.attempts == 1
    assert Counter(results.records) == EXPECTED


def test_a_silent_task_is_given_up_and_ends_as_a_zombie() -> None:
    """Silent for longer, the task is replaced; when the old one wakes it ends, and its acknowledgement is void."""
    results, trace = CollectedResults(), Trace()
    at = At("ack.send", BEFORE, COUNT, pause_ns=4 * HEARTBEAT_NS)
    result = ran(made(counted(results), at, instruments=[trace]))

    second = trace.of(AttemptStarted)[1].time_ns
    woken = next(state for state in trace.of(TaskState) if state.state == "resumed")
    ended = next(
        state
        for state in trace.of(TaskState)
        if (state.attempt, state.state) == (1, "canceled") and state.task == COUNT
    )
    assert second < woken.time_ns <= ended.time_ns
    assert "nothing was heard of it for 5000 ns" in result.notes[0]
    assert Counter(results.records) == EXPECTED


def test_a_zombie_does_what_it_was_about_to_do() -> None:
    """Paused before its commit, a sink still commits when it wakes, though another attempt has long taken over."""
    sink, trace = RecordingSink(), Trace()
    at = At("sink.commit", BEFORE, COUNT, pause_ns=4 * HEARTBEAT_NS)
    ran(made(counted(sink), at, instruments=[trace]))

    attempts = [attempt for attempt, what, _ in sink.calls if what == "complete"]
    assert 1 in attempts
    late = attempts.index(1)
    first_of_second = sink.calls.index(next(call for call in sink.calls if call[0] == 2))
    assert sink.calls.index((1, "complete", 1)) > first_of_second
    assert late < len(attempts)


def test_nobody_listens_to_a_zombie() -> None:
    """A source that reads its last record as a zombie does not end the input of the job; its output is dropped."""
    results = CollectedResults()
    at = At("source.emit", BEFORE, SOURCE, 6, pause_ns=6 * HEARTBEAT_NS)
    result = ran(made(counted(results), at))

    assert result.attempts == 2
    assert Counter(results.records) == EXPECTED


def test_a_successor_does_not_reach_who_is_silent() -> None:
    """A task that is paused while the job manager dies goes on as a zombie, however short the pause."""
    trace, results = Trace(), CollectedResults()

    class Both(At):
        def strike_master(self) -> None:
            self.execution.condemn(JOB_MANAGER, "struck down")

        def at(self, point: str, phase: str, actor: str) -> None:
            super().at(point, phase, actor)
            if (point, phase, actor) == ("complete.decide", AFTER, JOB_MANAGER) and self.visits.count(
                (point, phase, actor)
            ) == 1:
                self.execution.pause(COUNT, HEARTBEAT_NS - 1)
                self.strike_master()

    ran(made(counted(results), Both("never", BEFORE, "nobody"), instruments=[trace]))

    woken = next(at for at, state in enumerate(trace.of(TaskState)) if state.state == "resumed")
    assert any(state.attempt == 2 for state in trace.of(TaskState)[:woken])
    assert Counter(results.records) == EXPECTED


def test_a_pause_stretches_the_work_that_it_cuts() -> None:
    """No record is handled during the pause: the current slice, and all later work, come that much later."""
    ends = []
    for pause_ns in (0, 1_500):
        trace = Trace()
        at = At("user.process", BEFORE, COUNT, 2, victim=SOURCE, pause_ns=pause_ns)
        calm = {"checkpoint_interval": None, "seeded_schedule": False, "channel_capacity": 100}
        ran(made(counted(CollectedResults()), at if pause_ns else Calm(), instruments=[trace], **calm))
        ends.append(max(one.time_ns for one in trace.of(Send) if one.kind == "records"))
    assert ends[1] - ends[0] == 1_500


def test_batches_are_visited_one_by_one() -> None:
    """Each batch that user code takes is a step of its own."""
    sink = RecordingSink()
    at = At("never", BEFORE, "nobody")
    ran(made(counted(sink), at))

    taken = at.visits.count(("user.process", BEFORE, COUNT))
    assert taken == at.visits.count(("user.process", AFTER, COUNT)) >= RECORDS // 4
    assert len(sink.of("record")) == RECORDS


def test_a_zombie_can_neither_end_nor_run_for_the_job() -> None:
    """Reports of a task that was given up do not change what the job manager counts."""
    execution = made(counted(CollectedResults()), Calm())
    execution.begin()
    manager = execution.manager
    life = next(task.life for task in manager.tasks.values() if task.name == COUNT)
    before = manager.fingerprint()
    life.disowned = True
    expected = manager.end.fingerprint()

    manager.task_reached_end(life)
    manager.task_finished(life)
    manager.task_recovered(life)
    manager.source_backlog(life, True)
    source = next(task for task in manager.tasks.values() if task.name == SOURCE)
    source.life.disowned = True
    source.count(5)

    life.disowned = source.life.disowned = False
    assert manager.sources.records == 0
    assert manager.end.fingerprint() == expected
    assert manager.fingerprint() == before


def test_the_mail_of_a_zombie_is_gone() -> None:
    """Mail that was sent to a silent task before it was given up never reaches its operators."""
    sink = RecordingSink()

    class Silent(At):
        def at(self, point: str, phase: str, actor: str) -> None:
            super().at(point, phase, actor)
            if (point, phase, actor) == ("snapshot.sync", AFTER, COUNT) and self.execution.manager.job.attempt == 1:
                manager = self.execution.manager
                self.execution.pause(COUNT, 4 * HEARTBEAT_NS)
                task = next(task for task in manager.tasks.values() if task.name == COUNT)
                manager.post.to_task(task, "notify_checkpoint_complete", 1, 0)

    ran(made(counted(sink), Silent("never", BEFORE, "nobody")))

    assert [what for attempt, what, _ in sink.calls if attempt == 1 and what == "complete"] == []
    assert [what for attempt, what, _ in sink.calls if attempt == 1][-1] == "close"


def test_a_death_in_the_middle_of_a_snapshot_takes_nothing_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the synchronous parts of two operators: the prepared part of the first is not cancelled."""
    cancelled = []
    cancel = AsyncSnapshot.cancel

    def noted(snapshot: AsyncSnapshot) -> None:
        cancelled.append(snapshot.place.name)
        cancel(snapshot)

    monkeypatch.setattr(AsyncSnapshot, "cancel", noted)
    ran(made(counted(CollectedResults()), At("user.snapshot", AFTER, COUNT)))

    assert COUNT not in cancelled


def test_a_record_that_arrives_may_kill_its_receiver_alone() -> None:
    """Records in flight are captured as they arrive, in the sender's step: the receiver dies, the sender goes on."""
    at = At("channel-state.append", BEFORE, COUNT)
    execution = made(counted(CollectedResults()), at, mode="unaligned")
    execution.begin()
    task = next(task for task in execution.manager.tasks.values() if task.name == COUNT)
    channel = task.inputs[0]
    assert channel.capture is not None
    channel.capture.start(1)
    task.gate.state.open(1)

    task.gate.capture(channel, [Batch([1])])

    assert task.life.state == "failed"


def test_a_paused_task_does_not_end() -> None:
    """Instructions for the end of the task are carried out after the pause."""
    execution = made(counted(CollectedResults()), Calm())
    execution.begin()
    execution.pause(COUNT, 1_000)
    task = next(task for task in execution.manager.tasks.values() if task.name == COUNT)

    task.end.finish()
    task.end.stop()

    assert task.life.is_running
    assert isinstance(task.place.hook, TaskFaults)
    assert task.place.hook.pause is not None
    put_off = [payload for *_, payload in task.place.hook.pause.held[-2:]]
    assert put_off == [("go_on", ("finish", ())), ("go_on", ("stop", ()))]


@pytest.mark.parametrize("early", [True, False])
def test_no_vertex_with_union_state_comes_back_in_part_while_the_rest_finishes(early: bool) -> None:
    """The whole job goes back to the checkpoint that contains both pipelines, and ends from there."""
    runs: list[tuple[ExecutionResult, int]] = []
    for number in (0, 1):
        results, job = CollectedResults(), Job("halves", max_parallelism=8, parallelism=2)
        numbers = job.source(SequenceSource(0, 2, splits=2), name="numbers")
        numbers.map(lambda one: one, chain=False, name="out").collect(results, name="rows", parallelism=2)
        at = At("sink.commit", BEFORE, "rows[1]", runs[0][1] if number else 1_000)
        result = ran(made(job, at, failover="region", checkpoints_after_tasks_finish=early))
        assert sorted(results.records) == [0, 1]
        runs.append((result, at.visits.count(("sink.commit", BEFORE, "rows[1]"))))

    calm, struck = (result for result, _ in runs)
    assert (calm.attempts, struck.attempts) == (1, 2)
    assert [restore.tasks for restore in struck.restores] == [None, None], "all tasks, not one region"
