"""Spark may run a task twice, and the first attempt may still write when the second has finished.

Attempts at a sink take turns (`test_turns.py`), so here they meet only where they keep nothing but state.
"""

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
from tests.spark_bridge.pipeline.runs import config, in_batches, simulated, writes

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
        if self._point != "end" and writes(order):
            return run_partition(order, number, iter(given))

        def run_second() -> None:
            self.runs += 1
            second.extend(run_partition(order, number, iter(given)))

        self._waiting = run_second
        first = list(run_partition(order, number, iter(given)))
        self.reached(self._point)
        rows = [[batch.to_pylist() for batch in given] for given in (first, second)]
        assert rows[0] == rows[1], "a row tells its attempt"
        return iter(first if self._first_wins else second)

    def reached(self, point: str) -> None:
        """An attempt has come to this point."""
        if point == self._point and self._waiting is not None:
            waiting, self._waiting = self._waiting, None
            waiting()

    def watch(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Hear of the points of each attempt from now on."""
        start, finish, close = SubtaskBatch.__init__, SubtaskBatch.finish, SubtaskBatch.close

        def starting(part: SubtaskBatch, *arguments: Any) -> None:
            start(part, *arguments)
            self.reached("start")

        def finishing(part: SubtaskBatch) -> Iterator[None]:
            self.reached("snapshot")
            return finish(part)

        def closing(part: SubtaskBatch) -> None:
            self.reached("close")
            close(part)

        for name, patched in (("__init__", starting), ("finish", finishing), ("close", closing)):
            monkeypatch.setattr(SubtaskBatch, name, patched)
        monkeypatch.setattr(local_stages, "run_partition", self.run_partition)


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
    simulated(build(2), tmp_path / "undisturbed", config())
    twice = Twice(point, first_wins)
    twice.watch(monkeypatch)
    result, oracle = in_batches(build(2), tmp_path / "run", config(**options))
    assert result.error is None, result.error
    assert twice.runs >= (9 if point == "end" else 6)
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
