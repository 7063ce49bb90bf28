"""Spark may run a task twice, and the first attempt may still write when the second has finished."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from engine import Job
from spark_bridge.pipeline.stage_function import StageOrder, run_partition
from spark_bridge.pipeline.subtask_batch import NewFiles, SubtaskBatch
from tests.spark_bridge.pipeline import jobs, local_stages
from tests.spark_bridge.pipeline.runs import config, in_batches, simulated

Rows = list[pa.RecordBatch]


class Twice:
    """Runs each partition twice: the second attempt, from its start to its end, while the first is at ``point``."""

    def __init__(self, point: str, first_wins: bool) -> None:
        self.runs = 0
        self._point = point
        self._first_wins = first_wins
        self._waiting: Callable[[], None] | None = None

    def run_partition(self, order: StageOrder, number: int, batches: Iterator[pa.RecordBatch]) -> Iterator[Any]:
        given, second = list(batches), Rows()

        def run_second() -> None:
            self.runs += 1
            second.extend(run_partition(order, number, iter(given)))

        self._waiting = run_second
        first = list(run_partition(order, number, iter(given)))
        self.reached(self._point)
        assert [one.to_pylist() for one in first] == [one.to_pylist() for one in second], "a row tells its attempt"
        return iter(first if self._first_wins else second)

    def reached(self, point: str) -> None:
        """An attempt has come to this point."""
        if point == self._point and self._waiting is not None:
            waiting, self._waiting = self._waiting, None
            waiting()


@pytest.mark.parametrize(
    "options", [{"inline_state_bytes": 0}, {"state_backend": "lsm", "snapshot": "incremental"}], ids=str
)
@pytest.mark.parametrize("first_wins", [False, True], ids=["second", "first"])
@pytest.mark.parametrize("point", ["start", "snapshot", "close", "end"])
@pytest.mark.parametrize("build", [jobs.word_count, jobs.windows], ids=lambda build: build.__name__)
def test_two_attempts_at_each_task(
    build: Callable[[int], Job],
    point: str,
    first_wins: bool,
    options: dict[str, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whichever of them counts, the output is that of an undisturbed run, and their rows are the same."""
    twice = Twice(point, first_wins)
    start, finish, close = SubtaskBatch.__init__, SubtaskBatch.finish, SubtaskBatch.close

    def starting(self: SubtaskBatch, *arguments: Any) -> None:
        start(self, *arguments)
        twice.reached("start")

    def finishing(self: SubtaskBatch) -> Iterator[None]:
        twice.reached("snapshot")
        return finish(self)

    def closing(self: SubtaskBatch) -> None:
        twice.reached("close")
        close(self)

    simulated(build(2), tmp_path / "undisturbed", config())
    for name, patched in (("__init__", starting), ("finish", finishing), ("close", closing)):
        monkeypatch.setattr(SubtaskBatch, name, patched)
    monkeypatch.setattr(local_stages, "run_partition", twice.run_partition)
    result, oracle = in_batches(build(2), tmp_path / "run", config(**options))
    assert result.error is None, result.error
    assert twice.runs >= 9
    assert jobs.committed(tmp_path / "run" / "out") == jobs.committed(tmp_path / "undisturbed" / "out")
    assert oracle.held
    assert not list((tmp_path / "run" / "state").glob("*/work/*")), "an attempt has left its working files"


def test_an_attempt_that_is_given_up_writes_into_no_file_of_its_successor(tmp_path: Path) -> None:
    """It may have a file of the same name open for long, as a worker that was frozen has."""
    path = str(tmp_path / "part")
    with NewFiles().open_write(path) as given_up:
        given_up.write(b"given up")
        with NewFiles().open_write(path) as successor:
            successor.write(b"whole")
        given_up.write(b", and much longer")
    assert Path(path).read_bytes() == b"whole"
