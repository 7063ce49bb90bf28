"""The self-check passes what is deterministic and catches each way of not being so."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from engine import CollectionSource, FileSink, Job
from engine.elements.events import CheckpointBarrier
from engine.explore import Surroundings, self_check
from engine.runtime.config import CheckpointInterval, RunConfig
from engine.runtime.execution import Execution


def make_factory(
    transform: Callable[[int], int] = lambda value: value, *, items: int = 60, seed: str = "1", kill: bool = False
) -> Callable[[Surroundings], Execution]:
    """Builds a small keyed job over two splits, with checkpoints and a file sink."""

    def build(around: Surroundings) -> Execution:
        job = Job("checked", parallelism=2)
        (
            job.source(CollectionSource(list(range(items)), splits=2))
            .map(transform)
            .key_by(lambda value: value % 5)
            .reduce(lambda left, right: left + right)
            .sink(FileSink("/sums"))
        )
        execution = Execution(
            job.plan(),
            RunConfig(seed=seed, batch_size=4, checkpoint_interval=CheckpointInterval(records=20), retained=3),
            storage=around.storage,
            file_system=around.file_system,
            instruments=around.instruments,
        )
        if kill:
            execution.kill("reduce", 9_000)
        return execution

    return build


def alternating(values: Iterator[int]) -> Callable[[int], int]:
    """A function that answers otherwise each time it is asked: what a user's function must not be."""
    return lambda value: value + next(values)


@pytest.mark.parametrize("kill", [False, True])
def test_a_deterministic_job_passes(kill: bool) -> None:
    """Twice the same job, seed and faults give the same events, choices and files."""
    report = self_check(make_factory(kill=kill))

    assert report.deterministic, report.describe()
    assert report.first == report.second
    assert any(path.startswith("checkpoints:") for path in report.first.files)
    assert any(path.startswith("output:") for path in report.first.files)
    assert report.describe().startswith("deterministic: ")


def test_values_that_differ_show_in_the_files() -> None:
    """A function that answers otherwise each time leaves the trace alone; the stored bytes give it away."""
    numbers = iter(range(0, 5_000, 5))
    report = self_check(make_factory(alternating(numbers)))

    assert not report.deterministic
    assert all(difference.startswith("files: ") for difference in report.differences)
    assert "differs from byte" in report.describe()


def test_another_seed_shows_in_the_choices() -> None:
    """The first choice that differs is named with its number."""
    report = self_check(make_factory(seed="1"), make_factory(seed="2"))

    assert any(difference.startswith("choices: number ") for difference in report.differences), report.describe()


def test_another_input_shows_in_the_trace() -> None:
    """The first event that differs is shown."""
    report = self_check(make_factory(items=60), make_factory(items=61))

    assert any(difference.startswith("trace: ") for difference in report.differences), report.describe()


def test_a_run_that_ends_otherwise_is_reported() -> None:
    """One run that fails and one that does not are different, whatever else they share."""

    def broken(value: int) -> int:
        raise ValueError("no")

    report = self_check(make_factory(), make_factory(broken))

    assert report.differences[0].startswith("end: the first run finished (no error), the second failed (job 'checked'")


def test_a_factory_that_drops_the_instruments_is_a_bug() -> None:
    """Without the instruments there is nothing to compare, and silence would pass for success."""
    factory = make_factory()

    def forgetful(around: Surroundings) -> Execution:
        return factory(Surroundings(around.storage, around.file_system, ()))

    with pytest.raises(AssertionError, match="without the instruments"):
        self_check(forgetful)


def test_selfcheck_needs_no_special_events() -> None:
    """The tape takes any event: a digest of its text, not of its type."""
    from engine.explore.run.selfcheck import _EventTape

    first = _EventTape()
    second = _EventTape()
    events: list[Any] = [CheckpointBarrier(1, 5), CheckpointBarrier(2, 6)]
    for event in events:
        first(event)
        second(event)

    assert first.hexdigest() == second.hexdigest()
    shorter = _EventTape(first.digests)
    shorter(events[0])
    assert shorter.differences() == (f"trace: the second run ends 1 events earlier, behind {events[0]!r}",)
