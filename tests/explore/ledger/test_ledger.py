"""The ledger accounts for each record, in every mode, under any failure at any time."""

from __future__ import annotations

import copy
import pickle
import re
from dataclasses import replace

import pytest

from engine import CollectedResults, CostModel, Job, RunConfig, SequenceSource
from engine.checkpoint.restore import FixedDelayRestart, NoRestart
from engine.explore.ledger import LOST, TWICE, VISIBLE, EffectLedger, Finding, Seen, findings, reference
from engine.observe.trace_events import AttemptStarted
from engine.protocols.barriers import AlignedBarriers, AtLeastOnceBarriers
from engine.runtime.channels import Channel
from engine.runtime.execution import Execution, ExecutionResult
from operators.basic import CollectSink, SinkOperator
from state_backends import MemoryFileSystem
from state_backends.base import key_group_for, operator_index_for_key_group
from state_backends.snapshots import CheckpointStorage
from tests.explore.ledger.jobs import KEYS, RECORDS, Audited, audited, config, counting
from tests.stored_runs import run_stored

SPLITS = ("sequence-0-of-2", "sequence-1-of-2")


def records_of(found: list[Finding]) -> set[tuple[str | None, int]]:
    """``(split, number)`` of each record in the findings."""
    return {(one.origin.split, number) for one in found for first, end in one.ranges for number in range(first, end)}


def twice_in_cells(run: Audited) -> set[tuple[str | None, int]]:
    return records_of([one for one in run.found.found if one.kind == TWICE and one.place.kind == "key"])


@pytest.mark.parametrize("mode", ["aligned", "unaligned", "aligned-timeout"])
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("kill", ["count[0]@130us", "numbers[1]@145us", "job manager@135us"])
def test_nothing_is_lost_or_doubled_in_the_modes_that_promise_it(mode: str, seed: int, kill: str) -> None:
    """Under any kill and random orders of events, each record has each of its effects once."""
    settings = config(mode, seed=str(seed))
    if mode == "aligned-timeout":
        settings = replace(settings, aligned_timeout_ns=10_000)
    run = audited(settings, [kill])
    assert run.result.attempts == 2
    assert run.told() == []
    cells = {place: effects for place, effects in run.ledger.effects().items() if place.kind == "key"}
    assert sum(effects.total() for effects in cells.values()) == RECORDS


def test_records_in_flight_keep_their_causes() -> None:
    """A restore from an unaligned checkpoint that has records in flight does not lose or double any."""
    run = audited(config("unaligned"), ["count[0]@130us"])
    restart = run.ledger.restarts[-1]
    assert sum(map(len, restart.part.in_flight.values())) > 0
    assert run.told() == []


def test_records_in_flight_that_are_forgotten_are_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """If an engine does not restore records in flight, the ledger names exactly these, with the checkpoint."""
    settings = config("unaligned")
    monkeypatch.setattr(Channel, "restore", lambda self, inputs, outputs: ORIGINAL(self, (), ()))
    run = audited(settings, ["count[0]@130us"])
    restart = run.ledger.restarts[-1]
    stored = {
        (run.ledger.origins[origin].split, number)
        for causes in restart.part.in_flight.values()
        for origin, number in causes
    }
    lost = [one for one in run.found.found if one.kind == LOST]
    assert stored
    assert records_of([one for one in lost if one.place.kind == "key"]) == stored
    assert {one.kind for one in run.found.found} == {LOST}
    assert all("holds them in flight, and they have not come from there" in one.why for one in lost)


ORIGINAL = Channel.restore


def predicted(run: Audited, parallelism: int) -> set[tuple[str | None, int]]:
    """The orphans of the restored checkpoint, record by record, from the counters of its channels alone."""
    checkpoint_id = run.result.restores[-1].checkpoint_id
    cut = next(one for one in run.cuts if one.checkpoint_id == checkpoint_id)
    orphans: set[tuple[str | None, int]] = set()
    for channel, sent, received in cut.differences:
        sender, receiver = divmod(channel, parallelism)
        first = sender * RECORDS // 2
        on_channel = [
            number
            for number in range(RECORDS // 2)
            if operator_index_for_key_group(16, parallelism, key_group_for((first + number) % KEYS, 16)) == receiver
        ]
        orphans |= {(SPLITS[sender], number) for number in on_channel[sent:received]}
    return orphans


@pytest.mark.parametrize("seed", range(8))
def test_at_least_once_doubles_exactly_the_orphans(seed: int) -> None:
    """The records applied twice are exactly the orphans by the channel counters of the checkpoint."""
    run = audited(config("at-least-once", seed=str(seed)), [f"count[{seed % 2}]@{114 + 5 * seed}us"])
    assert run.result.attempts == 2
    assert twice_in_cells(run) == predicted(run, 2)
    assert not [one for one in run.found.found if one.kind == LOST]
    assert run.found.breaking("at-least-once") == ()


def test_some_of_those_runs_double_something() -> None:
    """The test before this one does not pass for want of orphans."""
    run = audited(config("at-least-once"), ["count[0]@130us"])
    assert len(twice_in_cells(run)) > 10
    assert run.found.breaking("exactly-once")


def test_an_engine_that_does_not_align_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """With alignment skipped in aligned mode, records are applied twice, and the crash and the checkpoint are named."""
    for method in ("barrier_handler", "options"):
        monkeypatch.setattr(AlignedBarriers, method, getattr(AtLeastOnceBarriers, method))
    run = audited(config("aligned"), ["count[1]@130us"])
    restored = run.result.restores[-1].checkpoint_id
    assert restored is not None
    assert {one.kind for one in run.found.found} == {TWICE}
    assert {one.restart.checkpoint_id for one in run.found.found if one.restart} == {restored}
    text = run.told()[0]
    assert "count -> out[1] was killed at +0.13ms" in text
    assert f"from checkpoint {restored}" in text
    assert "applied twice instead of once in count[key" in text
    assert "seen twice instead of once in the output of out" in text


def test_without_checkpoints_everything_begins_again() -> None:
    """Without a restore, output shown before the crash stays, and its records are seen twice."""
    settings = config("none", checkpoint_interval=None, restart=FixedDelayRestart(1, 1_000))
    run = audited(settings, ["count[0]@130us"], transactional=False)
    twice = [one for one in run.found.found if one.kind == TWICE]
    assert {one.place.kind for one in twice} == {"output"}
    assert "from nothing" in twice[0].why
    assert run.found.breaking("none") == ()


def test_a_sink_that_shows_at_once_is_told_apart() -> None:
    """Output that nothing can take back may be seen twice in exactly-once mode; state may not."""
    run = audited(config("aligned"), ["count[0]@130us"], transactional=False)
    assert run.found.found
    assert all(one.at_once and one.kind == TWICE for one in run.found.found)
    assert run.found.breaking("exactly-once") == ()


def test_of_two_crashes_the_one_is_named_that_did_it() -> None:
    """Records that the first restart applied twice are not blamed on the second, whose checkpoint holds them, too."""
    settings = config("at-least-once", seed="3", restart=FixedDelayRestart(None, 1_000))
    once = audited(settings, ["count[0]@130us"])
    run = audited(settings, ["count[0]@130us", "count[0]@255us"])
    assert run.result.attempts == 3
    first = [one for one in run.found.found if one.restart and one.restart.attempt == 2 and one.place.kind == "key"]
    assert first
    assert records_of(first) == twice_in_cells(once)


class _Hasty(SinkOperator):
    """Shows what it has at the barrier, before it is known whether the checkpoint will be complete."""

    def __init__(self, results: CollectedResults) -> None:
        self._results = results
        self._current: list[object] = []

    def process_batch(self, batch) -> None:  # type: ignore[no-untyped-def]
        self._current.extend(batch.values)

    def snapshot_state(self, checkpoint_id: int) -> None:
        self._results.append(self._current)
        self._current = []

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        """All rows are shown already."""


class _HastySink(CollectSink):
    def __init__(self, results: CollectedResults) -> None:
        super().__init__(results)
        self.shown = results

    def create_operator(self) -> _Hasty:
        return _Hasty(self.shown)


def hasty(results: CollectedResults) -> Job:
    job = Job("hasty", max_parallelism=16)
    numbers = job.source(SequenceSource(0, 300, splits=2), name="numbers", uid="numbers", parallelism=2)
    numbers.sink(_HastySink(results), name="out", uid="out", parallelism=1)
    return job


def test_output_of_a_checkpoint_that_never_completed_is_found() -> None:
    """A sink that commits at the barrier shows rows that are taken back: records, attempt, checkpoint are named."""
    slow = CostModel(storage_latency_ns=40_000)
    run = audited(config("aligned", cost=slow, inline_state_bytes=0), ["numbers[0]@70us"], make=hasty)
    visible = [one for one in run.found.found if one.kind == VISIBLE]
    assert visible
    assert {number for _, number in records_of(visible)} <= set(range(70))
    assert "checkpoint 1 covers what attempt 1 has written" in visible[0].why
    assert run.found.breaking("exactly-once")
    assert not run.found.breaking("at-least-once")


def process(
    number: int, job: Job, settings: RunConfig, files: MemoryFileSystem, ledger: EffectLedger, *kills: tuple[str, int]
) -> ExecutionResult:
    """One of several processes of a job; all but the first resume."""
    how = {"file_system": MemoryFileSystem(), "provenance": ledger}
    return run_stored(job, settings, files, resume=number > 0, kills=kills, **how)


def test_output_of_a_dead_process_is_found_in_the_next() -> None:
    """Rows that a process showed at a barrier and the next one takes back are found, although its tasks are gone."""
    slow = CostModel(storage_latency_ns=40_000)
    settings = config("aligned", cost=slow, inline_state_bytes=0, restart=NoRestart())
    files, results, ledger = MemoryFileSystem(), CollectedResults(transactional=False), EffectLedger()
    for number in range(2):
        kills = [] if number else [("numbers[0]", 70_000)]
        process(number, hasty(results), settings, files, ledger, *kills)
    seen = {"out": Seen([repr(one) for one in results.records])}
    found = findings(ledger, reference(hasty(results).plan(), settings), seen=seen)
    assert {one.kind for one in found.found} == {VISIBLE}


def test_output_behind_an_older_checkpoint_is_taken_back() -> None:
    """A run that goes back to an older checkpoint hides the rows after it; a sink that keeps them visible is found."""
    settings = config("aligned", restart=NoRestart(), retained=2)
    files, results, ledger = MemoryFileSystem(), CollectedResults(), EffectLedger()
    shown: list[list[str]] = []
    for number in range(2):
        if number:
            storage = CheckpointStorage(files, "/state", "counting")
            newest = max(storage.list_checkpoints())
            metadata = storage.location(newest).metadata_path
            files.delete(metadata)
            with files.open_write(metadata) as file:
                file.write(b"damaged")
        kills = [] if number else [("count[0]", 185_000)]
        process(number, counting(results), settings, files, ledger, *kills)
        shown.append([repr(one) for one in results.records])
    expected = reference(counting(results).plan(), settings)
    assert findings(ledger, expected, seen={"out": Seen(shown[1])}).found == ()
    # As if the first process' rows had stayed.
    stayed = findings(ledger, expected, seen={"out": Seen(shown[0] + shown[1])}).found
    visible = [one for one in stayed if one.kind == VISIBLE]
    assert visible
    assert f"checkpoint {newest} covers what attempt 1 has written" in visible[0].why


def test_what_finished_tasks_have_done_stays_done() -> None:
    """A process resumed from a checkpoint that was taken after part of the job ended keeps the effects of that part."""

    def halves(results: CollectedResults) -> Job:
        job = Job("halves", max_parallelism=16)
        for name, records in (("short", 40), ("long", 400)):
            numbers = job.source(SequenceSource(0, records), name=name, uid=name, parallelism=1)
            counts = numbers.key_by(lambda number: number % 3).reduce(
                lambda a, b: a + b, name=f"{name}-sum", uid=f"{name}-sum", parallelism=1
            )
            counts.sink(CollectSink(results), name=f"{name}-out", uid=f"{name}-out", parallelism=1)
        return job

    settings = config("aligned", restart=NoRestart())
    files, results, ledger = MemoryFileSystem(), CollectedResults(), EffectLedger()
    for number in range(2):
        kills = [] if number else [("long-sum[0]", 350_000)]
        process(number, halves(results), settings, files, ledger, *kills)
    assert not [task for task in ledger.restarts[1].tasks if task.startswith("short")]
    assert findings(ledger, reference(halves(results).plan(), settings)).paragraphs(ledger) == []


def test_a_row_that_readers_do_not_see_is_lost() -> None:
    """A committed row that readers do not see is lost; a row seen once more often than committed is double."""
    settings = config()
    run = audited(settings)
    rows = [repr(record) for record in run.results.records]
    plan = counting(CollectedResults()).plan()
    expected = reference(plan, settings)
    missing = findings(run.ledger, expected, seen={"out": Seen(rows[1:])})
    assert [one.kind for one in missing.found] == [LOST]
    assert missing.found[0].records == 1
    doubled = findings(run.ledger, expected, seen={"out": Seen([*rows, rows[0]])})
    assert [one.kind for one in doubled.found] == [TWICE]
    assert findings(run.ledger, expected, seen={"out": Seen(rows)}).found == ()


def test_another_number_of_subtasks_takes_the_cells_along() -> None:
    """A process resumed with more subtasks loses and doubles nothing: cells and causes move with their keys."""
    settings = config("unaligned", restart=NoRestart())
    files, results, ledger = MemoryFileSystem(), CollectedResults(), EffectLedger()
    states = []
    for number, parallelism in enumerate((2, 3, 1)):
        job = counting(results, parallelism=parallelism)
        kills = [("numbers[0]", 130_000)] if number < 2 else []
        states.append(process(number, job, settings, files, ledger, *kills).state)
    assert states == ["failed", "failed", "finished"]
    assert sum(map(len, ledger.restarts[1].part.in_flight.values())) > 0
    expected = reference(counting(results).plan(), settings)
    found = findings(ledger, expected, seen={"out": Seen([repr(one) for one in results.records])})
    assert found.paragraphs(ledger) == []
    assert found.problem is None


def test_only_the_region_that_failed_goes_back() -> None:
    """With pipelined regions the other half keeps its effects."""

    def two(results: CollectedResults) -> Job:
        job = Job("regions", max_parallelism=16)
        numbers = job.source(SequenceSource(0, 400, splits=2), name="numbers", uid="numbers", parallelism=2)
        numbers.map(lambda one: one, name="same", uid="same", parallelism=2, chain=False).sink(
            CollectSink(results), name="out", uid="out", parallelism=2
        )
        return job

    run = audited(config(failover="region"), ["same[0]@130us"], make=two)
    restore = run.result.restores[-1]
    assert restore.tasks is not None
    assert all(name.endswith("[0]") for name in restore.tasks)
    assert run.told() == []


def test_a_start_from_a_checkpoint_that_nobody_watched_is_not_judged() -> None:
    """A ledger that comes too late says so, and does not judge."""
    settings = config()
    ledger = EffectLedger()
    run = audited(settings)
    ledger.observe(AttemptStarted(0, 1, 7))
    late = findings(ledger, reference(counting(run.results).plan(), settings))
    assert late.found == ()
    assert late.problem is not None
    assert "checkpoint 7" in late.problem


def test_a_job_that_failed_is_not_said_to_have_lost_what_it_never_came_to() -> None:
    """For a job that did not finish the ledger only reports effects that happened too often."""
    settings = config(restart=NoRestart())
    plan = counting(CollectedResults()).plan()
    ledger = EffectLedger()
    execution = Execution(plan, settings, file_system=MemoryFileSystem(), output_dir="/out", provenance=ledger)
    execution.kill("count[0]", 130_000)
    assert execution.run().state == "failed"
    found = findings(ledger, reference(plan, settings))
    assert found.found == ()
    assert found.problem is not None
    assert re.search("failed", found.problem)


def test_what_the_order_of_events_decides_is_not_judged() -> None:
    """Cells whose effects differ between two runs without faults are left out, and counted."""

    def racing(results: CollectedResults) -> Job:
        job = Job("racing", max_parallelism=16)
        numbers = job.source(SequenceSource(0, 200, splits=2), name="numbers", uid="numbers", parallelism=2)
        first = numbers.key_by(lambda _: 0).process(_first_ten, name="first", uid="first", parallelism=1)
        first.sink(CollectSink(results), name="out", uid="out", parallelism=1)
        return job

    settings = config(cost=CostModel())
    expected = reference(racing(CollectedResults()).plan(), settings)
    assert expected.unsettled == {"out"}
    run = audited(settings, make=racing, sees=False)
    assert run.found.unsettled == 1
    assert run.told() == []


def _first_ten(value, ctx):  # type: ignore[no-untyped-def]
    state = ctx.value_state("count", 0)
    state.update(state.get() + 1)
    return [value] if state.get() <= 10 else None


def test_a_fork_of_a_run_has_a_ledger_of_its_own() -> None:
    """A run that was copied in the middle ends like the original, and neither ledger hears of the other run."""
    plan = counting(CollectedResults()).plan()
    ledger = EffectLedger()
    execution = Execution(plan, config(), file_system=MemoryFileSystem(), output_dir="/out", provenance=ledger)
    execution.manager.start(None)
    execution.kernel.run(400)
    fork = copy.deepcopy(execution)
    twin = fork.manager.deployment.environment.provenance
    assert isinstance(twin, EffectLedger)
    before = copy.deepcopy(ledger.effects())
    fork.kernel.run()
    assert ledger.effects() == before
    execution.kernel.run()
    assert ledger.effects() == twin.effects() != before
    assert ledger.exposed == twin.exposed
    assert pickle.loads(pickle.dumps(ledger)).effects() == ledger.effects()


def test_checkpoints_of_long_ago_are_forgotten() -> None:
    """A ledger keeps the checkpoints that the run may still restore, not all it has ever seen."""
    plan = counting(CollectedResults()).plan()
    ledger = EffectLedger(retains=2)
    result = Execution(plan, config(), file_system=MemoryFileSystem(), output_dir="/out", provenance=ledger).run()
    assert result.checkpoints.completed > 3
    assert len(ledger._checkpoints) == 2


def test_a_run_without_a_ledger_is_built_as_ever() -> None:
    """Without a ledger attached, every receiver, output and router is of the usual class."""
    execution = Execution(counting(CollectedResults()).plan(), RunConfig(), output_dir="/out")
    execution.manager.start(None)
    for task in execution.manager.tasks.values():
        assert task.chain.watched is None
        assert all(operator.lineage is None for operator in task.chain.operators)
        assert not any("Watched" in type(writer.router).__name__ for writer in task.writers)
        assert not any("Watched" in type(operator.output).__name__ for operator in task.chain.operators)
