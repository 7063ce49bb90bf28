"""Two attempts at one subtask at the same time: those that write elsewhere than into state take turns."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from engine import Job
from examples import end_to_end
from examples.end_to_end_sinks import SINKS, TABLES, Target
from spark_bridge.pipeline.stage_function import StageOrder, run_partition
from spark_bridge.pipeline.subtask_batch import SubtaskBatch
from spark_bridge.pipeline.turns import writes_elsewhere
from tests.spark_bridge.pipeline import jobs, local_stages
from tests.spark_bridge.pipeline.runs import config, in_batches, simulated, writes

Rows = list[pa.RecordBatch]
POINTS = ("__init__", "finish", "close")


class Killed(BaseException):
    """Stands for SIGKILL: nothing of the attempt comes after it."""


class Meetings:
    """Runs each partition with a sink twice. The second attempt starts when the first is at ``point``; ``dies``: and
    that one dies there."""

    def __init__(self, point: str, dies: bool) -> None:
        self.meetings = 0
        self.writers: list[str] = []
        self._point, self._dies = point, dies
        self._start_second: Callable[[], None] | None = None

    def run_partition(self, order: StageOrder, number: int, batches: Iterator[pa.RecordBatch]) -> Iterator[Any]:
        given, second = list(batches), Rows()
        if not writes(order):
            return run_partition(order, number, iter(given))
        waiting = threading.Thread(target=lambda: second.extend(run_partition(order, number, iter(given))))

        def start_second() -> None:
            self.meetings += 1
            waiting.start()
            waiting.join(0.02)
            assert waiting.is_alive(), "the second attempt did not wait for its turn"

        self._start_second = start_second
        try:
            first = list(run_partition(order, number, iter(given)))
        except Killed:
            waiting.join()
            return iter(second)
        if waiting.ident is None:
            # The subtask had ended before: it does not run.
            return iter(first)
        waiting.join()
        assert [one.to_pylist() for one in first] == [one.to_pylist() for one in second]
        return iter(second)

    def reached(self, point: str, part: SubtaskBatch) -> None:
        """An attempt has come to this point."""
        self.writers += [threading.current_thread().name] if point == "__init__" else []
        if point == self._point and self._start_second is not None:
            start, self._start_second = self._start_second, None
            start()
            if self._dies:
                for turn in part._turns:
                    turn.release()  # as the kernel does for a dead process
                raise Killed

    def watch(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Hear of the points of each attempt from now on."""

        def wrapped(name: str, inner: Callable[..., Any]) -> Callable[..., Any]:
            def call(part: SubtaskBatch, *arguments: Any) -> Any:
                answer = inner(part, *arguments) if name == "__init__" else None
                if threading.current_thread() is not threading.main_thread() or part._order.barrier is not None:
                    self.reached(name, part)
                return answer if name == "__init__" else inner(part, *arguments)

            return call

        for name in POINTS:
            monkeypatch.setattr(SubtaskBatch, name, wrapped(name, getattr(SubtaskBatch, name)))
        monkeypatch.setattr(local_stages, "run_partition", self.run_partition)

    def check(self) -> None:
        """They met, and a second attempt wrote exactly where the first had died."""
        assert self.meetings >= 4
        seconds = [name for name in self.writers if name != threading.main_thread().name]
        assert len(seconds) == (self.meetings if self._dies else 0)


@pytest.mark.parametrize("dies", [False, True], ids=["both", "first-dies"])
@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("build", [jobs.word_count, jobs.windows], ids=lambda build: build.__name__)
def test_attempts_that_meet_at_a_sink(
    build: Callable[[int], Job], point: str, dies: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second one writes only when the first has died; the output is that of an undisturbed run."""
    simulated(build(2), tmp_path / "undisturbed", config())
    meetings = Meetings(point, dies)
    meetings.watch(monkeypatch)
    result, oracle = in_batches(build(2), tmp_path / "run", config())
    assert result.error is None, result.error
    meetings.check()
    assert jobs.committed(tmp_path / "run" / "out") == jobs.committed(tmp_path / "undisturbed" / "out")
    assert oracle.held
    assert not list((tmp_path / "run" / "state").glob("*/work/*")), "an attempt has left its working files"


@pytest.mark.parametrize("dies", [False, True], ids=["both", "first-dies"])
@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("name", ["sqlite", "upsert", "log"])
def test_attempts_that_meet_at_a_transaction(
    name: str, point: str, dies: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An attempt whose transaction another one has aborted must not count, so each row is there once."""
    target = Target(SINKS[name], str(tmp_path / "out"), None)
    meetings = Meetings(point, dies)
    meetings.watch(monkeypatch)
    result, _ = in_batches(end_to_end.pipeline(target.sink()), tmp_path, config(80), seed=5)
    assert result.error is None, result.error
    meetings.check()
    expected = end_to_end.rows_by_number()
    assert Counter(target.rows()) == Counter(expected[-4:] if name in TABLES else expected)


def test_who_takes_turns() -> None:
    """Sinks do; sources, and operators that only keep state, run as often as Spark likes."""
    plan = jobs.windows(2).plan()
    writers = [vertex.name for vertex in plan.vertices if writes_elsewhere(vertex)]
    assert 0 < len(writers) < len(plan.vertices)
    assert not any(vertex.is_source for vertex in plan.vertices if writes_elsewhere(vertex))
