"""Random operations on a changelog: against a dict, with checkpoints, materialisations, lost and late messages,
failures, rescales and savepoints; the registry of shared files deletes what it may, as early as it may."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import settings, strategies as st
from hypothesis.stateful import precondition, rule, run_state_machine_as_test

from engine.checkpoint.coordinator import SharedState
from engine.checkpoint.coordinator.shared_state_registry import UnknownPlaceholderError
from state_backends.api import StateBackend
from state_backends.base import KeyGroupRange, key_group_for
from state_backends.base.key_groups import key_group_ranges
from state_backends.heap import HeapStateBackend
from state_backends.lsm import LsmStateBackend
from state_backends.snapshots import KeyedStateHandle, SnapshotOptions, SnapshotTask, SnapshotType, run_to_completion
from state_backends.snapshots.contract import SnapshotStatus
from tests.state_backends.changelog.support import ALL, MAX_PARALLELISM, World
from tests.state_backends.differential.backends import World as PlainWorld
from tests.state_backends.differential.model import Model, States
from tests.state_backends.differential.test_machine import DifferentialMachine
from tests.state_backends.support import DeferredExecutor, told

RETAINED = 2
INNER: dict[str, StateBackend] = {
    "heap": HeapStateBackend(),
    "lsm": LsmStateBackend(memtable_bytes=300, block_bytes=64, cache_bytes=2_000, level0_trigger=2),
    "lsm, incremental": LsmStateBackend(
        incremental=True, memtable_bytes=300, block_bytes=64, cache_bytes=2_000, level0_trigger=2
    ),
}
KINDS = st.sampled_from([SnapshotType.CHECKPOINT] * 4 + [SnapshotType.FULL_CHECKPOINT])


@dataclass
class Attempted:
    """A checkpoint under way, with what it must contain."""

    number: int
    task: SnapshotTask[KeyedStateHandle]
    expected: Model
    handles: list[KeyedStateHandle] | None = None
    is_acknowledged: bool = False
    is_aborted: bool = False

    def step(self, machine: ChangelogMachine) -> None:
        if self.task.status in (SnapshotStatus.CREATED, SnapshotStatus.RUNNING):
            result = self.task.step()
            if result is not None:
                handle = result.job_manager_state
                self.handles = [] if handle is None else [handle]
                machine.handed.update(file.path for one in self.handles for file, _ in one.shared())


@dataclass
class Retained:
    number: int
    handles: list[KeyedStateHandle] = field(default_factory=list)
    expected: Model = field(default_factory=Model)


class ChangelogMachine(DifferentialMachine):
    """The operations of the differential suite on a changelog, and a life of its own."""

    def __init__(self, inner: StateBackend) -> None:
        self.inner = inner
        self.job = World()
        self.under_way: list[Attempted] = []
        self.retained: list[Retained] = []
        self.notifications: list[tuple[str, int]] = []
        self.last_number = self.born = 0
        self.handed: set[str] = set()
        self.queue = DeferredExecutor()
        super().__init__(SnapshotType.CHECKPOINT, ("heap",))

    def fresh(self, groups: KeyGroupRange) -> Any:
        """A new changelog, whose segments are small."""
        return self.job.backend(groups, inner=self.inner, executor=self.queue, segment_bytes=70)

    # --- no rules here: lives are others, and fewer operations make more of them --------------------------------------

    begin_checkpoint = complete_checkpoint = abort_checkpoint = None  # type: ignore[assignment]
    update_values = update_list = add_to_lists = add_one = None  # type: ignore[assignment]
    clear = delete_timer = remove_from_map = None  # type: ignore[assignment]

    @rule(steps=st.integers(1, 5))
    def background(self, steps: int) -> None:
        """Let background work get on: uploads of segments, materialisation, compaction."""
        for _ in range(steps):
            self.queue.step()

    @rule()
    def materialize(self) -> None:
        work = self.backend.materialize()  # type: ignore[attr-defined]
        if work is not None:
            self.queue.submit(work)

    @rule()
    def materialize_at_once(self) -> None:
        self.materialize()
        self.queue.run()

    # --- checkpoints --------------------------------------------------------------------------------------------------

    @precondition(lambda self: sum(not one.is_aborted for one in self.under_way) < 3)
    @rule(kind=KINDS)
    def trigger(self, kind: SnapshotType) -> None:
        self.last_number += 1
        options = SnapshotOptions(kind, entries_per_step=1)
        task = self.job.begin(self.backend, self.last_number, options)
        self.under_way.append(Attempted(self.last_number, task, self.model.copy()))

    @rule(kind=KINDS, told=st.booleans())
    def checkpoint(self, kind: SnapshotType, told: bool) -> None:
        """A checkpoint that comes to its end undisturbed; the task hears of it, or not yet."""
        self.trigger(kind)
        one = self.under_way[-1]
        while one.handles is None:
            one.step(self)
        self.acknowledge(len(self.under_way) - 1)
        self.complete(sum(one.is_acknowledged and not one.is_aborted for one in self.under_way) - 1)
        while told and self.notifications:
            self.notify(1)

    @rule(arrives=st.booleans(), told=st.booleans())
    def vain_checkpoint(self, arrives: bool, told: bool) -> None:
        """A checkpoint that this task has finished and that is aborted all the same."""
        self.trigger(SnapshotType.CHECKPOINT)
        one = self.under_way[-1]
        while one.handles is None:
            one.step(self)
        if arrives:
            self.acknowledge(len(self.under_way) - 1)
        self.give_up(one)
        while told and self.notifications:
            self.notify(1)

    @precondition(lambda self: self.under_way)
    @rule(which=st.integers(0, 5), steps=st.integers(1, 6))
    def step_checkpoint(self, which: int, steps: int) -> None:
        for _ in range(steps):
            self.under_way[which % len(self.under_way)].step(self)

    @precondition(lambda self: self.under_way)
    @rule(which=st.integers(0, 5))
    def acknowledge(self, which: int) -> None:
        """The message with the result arrives, maybe late, in any order: its files are registered. What a checkpoint
        that can still complete refers to is never unknown."""
        one = self.under_way[which % len(self.under_way)]
        if one.handles is None or one.is_acknowledged:
            return
        one.is_acknowledged = True
        newest = self.retained[-1].number if self.retained else 0
        for handle in one.handles:
            for file, is_new in handle.shared():
                state = SharedState(file.path, file if is_new else None)
                try:
                    self.job.registry.register(state, one.number)
                except UnknownPlaceholderError:
                    assert one.is_aborted
                    assert one.number < newest
        if one.is_aborted:
            self.under_way.remove(one)

    @precondition(lambda self: any(one.is_acknowledged and not one.is_aborted for one in self.under_way))
    @rule(which=st.integers(0, 5))
    def complete(self, which: int) -> None:
        """A checkpoint completes: older ones are aborted, the oldest retained one is subsumed, and unneeded data
        is deleted."""
        ready = [one for one in self.under_way if one.is_acknowledged and not one.is_aborted]
        one = ready[which % len(ready)]
        self.under_way.remove(one)
        assert one.handles is not None
        self.retained.append(Retained(one.number, one.handles, one.expected))
        self.notifications.append(("complete", one.number))
        if len(self.retained) > RETAINED:
            self.notifications.append(("subsumed", self.retained.pop(0).number))
        for older in list(self.under_way):
            if older.number < one.number and not older.is_aborted:
                self.give_up(older)
        self.job.subsume(self.retained[0].number)
        self.check_retained()

    @precondition(lambda self: any(not one.is_aborted for one in self.under_way))
    @rule(which=st.integers(0, 5))
    def abort(self, which: int) -> None:
        pending = [one for one in self.under_way if not one.is_aborted]
        self.give_up(pending[which % len(pending)])

    def give_up(self, one: Attempted) -> None:
        """A checkpoint will not complete. The task will hear of it; its message may still arrive."""
        one.is_aborted = True
        self.notifications.append(("abort", one.number))
        if one.is_acknowledged:
            self.under_way.remove(one)

    @precondition(lambda self: self.notifications)
    @rule(count=st.integers(1, 4))
    def notify(self, count: int) -> None:
        for _ in range(min(count, len(self.notifications))):
            kind, number = self.notifications.pop(0)
            if kind == "abort":
                for one in [one for one in self.under_way if one.number == number]:
                    files = set(self.job.shared_files())
                    was_running = one.handles is None
                    one.task.cancel()
                    if was_running:
                        self.under_way.remove(one)
                        assert set(self.job.shared_files()) <= files
            getattr(told(self.backend), kind)(number)

    @precondition(lambda self: self.notifications)
    @rule()
    def lose_a_message(self) -> None:
        """A message of the coordinator that is no abort of a running snapshot is lost."""
        kind, number = self.notifications[0]
        if kind != "abort" or all(one.number != number for one in self.under_way):
            self.notifications.pop(0)

    def check_retained(self) -> None:
        """Every file of every retained checkpoint is there, and the newest restores to the state it was taken of."""
        reader = self.job.reader()
        for checkpoint in self.retained:
            for handle in checkpoint.handles:
                for stream in handle.streams():
                    reader.verify(stream)
        newest = self.retained[-1]
        backend = self.job.backend(inner=self.inner)
        self.job.restored(newest.handles, backend)
        States(backend).check(newest.expected)
        backend.dispose()

    # --- lives --------------------------------------------------------------------------------------------------------

    def end_of_life(self) -> None:
        """The task dies. Uploads that it never put into a finished snapshot are gone."""
        for one in self.under_way:
            one.task.cancel()
        self.under_way = []
        self.notifications = []
        self.queue.cancel()
        self.born = self.last_number
        self.backend.dispose()
        root = f"{self.job.storage.job_dir}/"
        assert {path.removeprefix(root) for path in self.job.shared_files()} <= self.handed
        assert list(self.job.file_system.walk_files(f"{root}work")) == []

    def go_on_from(self, handles: list[KeyedStateHandle], reader: Any = None) -> None:
        self.end_of_life()
        self.use(self.job.restored(handles, self.fresh(ALL), reader))

    @rule()
    def fail_and_recover(self) -> None:
        """Back to the newest completed checkpoint, or to nothing."""
        newest = self.retained[-1] if self.retained else Retained(0)
        self.model = newest.expected.copy()
        self.go_on_from(newest.handles)

    @precondition(lambda self: self.last_number > self.born + 3)
    @rule(kind=st.sampled_from([SnapshotType.CANONICAL_SAVEPOINT, SnapshotType.NATIVE_SAVEPOINT]))
    def restart(self, kind: SnapshotType) -> None:
        """Restart from a savepoint; it shares no file, so no later checkpoint may refer to it."""
        self.last_number += 1
        location = self.job.storage.initialize_savepoint_location(f"/savepoints/{self.last_number}", self.last_number)
        options = SnapshotOptions(kind, entries_per_step=1)
        strategy = self.backend.snapshot_strategy(options)
        resources = strategy.sync_prepare_resources(self.last_number)
        task = strategy.async_snapshot(resources, location.stream_factory("s"), options)
        handle = run_to_completion(task).job_manager_state
        fingerprint = self.backend.fingerprint()
        self.go_on_from([] if handle is None else [handle], location.reader())
        location.discard()
        assert self.backend.fingerprint() == fingerprint

    @precondition(lambda self: self.retained and self.last_number > self.born + 3)
    @rule(parallelism=st.integers(2, MAX_PARALLELISM), key=st.integers(-3, 6))
    def rescale(self, parallelism: int, key: int) -> None:
        """Split the newest checkpoint over several subtasks; each changes something, and takes two checkpoints; go on
        from the union of the second ones."""
        newest = self.retained[-1]
        self.model = newest.expected.copy()
        self.end_of_life()
        parts = []
        for groups in key_group_ranges(MAX_PARALLELISM, parallelism):
            cut = [one for handle in newest.handles if (one := handle.intersect(groups)) is not None]
            parts.append(self.job.restored(cut, self.fresh(groups)))
        for _ in range(2):
            self.last_number += 1
            handles: list[KeyedStateHandle] = []
            for part in parts:
                task = self.job.begin(part, self.last_number, SnapshotOptions(entries_per_step=1))
                handle = run_to_completion(task).job_manager_state
                handles += [] if handle is None else [handle]
            self.handed.update(file.path for handle in handles for file, _ in handle.shared())
            self.job.register(handles, self.last_number)
            self.retained = [*self.retained, Retained(self.last_number, handles, self.model.copy())][-RETAINED:]
            self.job.subsume(self.retained[0].number)
            for part in parts:
                told(part).complete(self.last_number)
            self.check_retained()
            for part in parts:
                part.timer_service("t").event_time.register(*self.own_timer(part, key))
        self.queue.cancel()
        for part in parts:
            part.dispose()
        self.model = self.retained[-1].expected.copy()
        self.use(self.job.restored(self.retained[-1].handles, self.fresh(ALL)))

    def own_timer(self, part: Any, key: int) -> tuple[list[int], list[None], list[int]]:
        """The arguments for a timer of a key, if the subtask owns it."""
        if key_group_for(key, MAX_PARALLELISM) not in part.key_group_range:
            return [], [], []
        self.model.timers.add(("event", 2, key, None))
        return [key], [None], [2]

    @rule()
    def backend_equals_model(self) -> None:
        """Every entry of the model is in the backend, and no other, and content is that of a heap."""
        self.states.check(self.model)
        heap = PlainWorld().backend("heap", MAX_PARALLELISM)
        States(heap).fill(self.model)
        assert heap.fingerprint() == self.backend.fingerprint()
        self.backend._history.validate()  # type: ignore[attr-defined]

    def teardown(self) -> None:
        """After any history the state is right."""
        self.backend_equals_model()
        self.end_of_life()


def search(inner: str, examples: int, steps: int) -> None:
    run_state_machine_as_test(
        lambda: ChangelogMachine(INNER[inner]),
        settings=settings(max_examples=examples, stateful_step_count=steps, deadline=None),
    )


@pytest.mark.parametrize("inner", sorted(INNER))
def test_a_changelog_keeps_its_promises(inner: str) -> None:
    """After any history, a completed checkpoint restores to exactly the state it was taken of."""
    search(inner, 25, 50)


@pytest.mark.slow
@pytest.mark.parametrize("inner", sorted(INNER))
def test_a_changelog_keeps_its_promises_for_long(inner: str) -> None:
    """The same, longer."""
    search(inner, 100, 80)
